package real

import (
	"errors"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/tidemark-log/tidemark/broker/coord"
)

var coordErrors = []struct {
	theirs error
	ours   *coord.Error
}{
	{zk.ErrNoNode, coord.ErrNoNode},
	{zk.ErrNodeExists, coord.ErrNodeExists},
	{zk.ErrBadVersion, coord.ErrBadVersion},
	{zk.ErrNotEmpty, coord.ErrNotEmpty},
	{zk.ErrNoChildrenForEphemerals, coord.ErrNoChildrenForEphemerals},
	{zk.ErrBadArguments, coord.ErrBadArguments},
	{zk.ErrInvalidPath, coord.ErrBadArguments},
	{zk.ErrSessionExpired, coord.ErrSessionExpired},
}

// Errors for which the library has no value, and says the number in words.
var unnamedErrors = []*coord.Error{coord.ErrRuntimeInconsistency, coord.ErrQuotaExceeded, coord.ErrThrottled}

// coordError is the contract's error for one of the library's. Whatever is not the server's answer
// to the request leaves the outcome unknown: a closed socket, a timeout, an answer that cannot be read.
func coordError(err error) error {
	if err == nil {
		return nil
	}
	for _, e := range coordErrors {
		if errors.Is(err, e.theirs) {
			return e.ours
		}
	}
	if number, ok := strings.CutPrefix(err.Error(), "unknown error: "); ok {
		code, _ := strconv.Atoi(number)
		for _, e := range unnamedErrors {
			if int(e.Code) == code {
				return e
			}
		}
		return err
	}
	for _, refused := range []error{zk.ErrNoAuth, zk.ErrInvalidACL, zk.ErrAuthFailed, zk.ErrAPIError} {
		if errors.Is(err, refused) {
			return err
		}
	}
	return coord.ErrConnectionLoss
}
