package coord

// SessionState is what a client learns of its session, through the function that its session was
// opened with. Like every callback it runs later, never inside a call, with no lock held.
//
//	open ─► Connected ⇄ Disconnected ─► Expired
//
// Connected comes first and after every reconnection; Session is valid from the first on.
//
// Disconnected: the connection is gone, or has been silent for too long. The session lives on at the service until
// its timeout is over, which the client cannot see: it may have expired already. Nothing is told
// when a connection is lost and back before the client noticed.
//
// Expired comes at most once and is the last: the service has ended the session. A client learns that only from
// the service, that is on reconnection, so others may long have seen its ephemerals go. A new session is a new
// client. After Close nothing is told.
//
// Local has no network; its session ends with Close or with the process alone, and it tells nothing.
type SessionState uint8

const (
	Connected SessionState = iota + 1
	Disconnected
	Expired
)

func (s SessionState) String() string {
	switch s {
	case Connected:
		return "connected"
	case Disconnected:
		return "disconnected"
	case Expired:
		return "expired"
	}
	return "unknown"
}
