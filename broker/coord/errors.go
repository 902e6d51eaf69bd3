package coord

// Error is an answer of the coordination service that ZooKeeper defines;
// compared by identity.
type Error struct {
	Code int32 // ZooKeeper's
	Text string
}

func (e *Error) Error() string { return "coord: " + e.Text }

var (
	ErrRuntimeInconsistency    = &Error{-2, "not done: another operation of the transaction failed"}
	ErrConnectionLoss          = &Error{-4, "connection lost: the outcome is unknown"}
	ErrBadArguments            = &Error{-8, "bad arguments"}
	ErrNoNode                  = &Error{-101, "node does not exist"}
	ErrBadVersion              = &Error{-103, "version does not match"}
	ErrNoChildrenForEphemerals = &Error{-108, "ephemeral nodes have no children"}
	ErrNodeExists              = &Error{-110, "node exists"}
	ErrNotEmpty                = &Error{-111, "node has children"}
	ErrSessionExpired          = &Error{-112, "session expired"}
	ErrQuotaExceeded           = &Error{-125, "the service keeps no more than this"}
	ErrThrottled               = &Error{-127, "too many operations in flight"}
	// ErrTooLarge has no code of its own: ZooKeeper drops the connection.
	ErrTooLarge = &Error{-4, "data or transaction over 1 MiB"}
)
