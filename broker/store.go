package broker

import "errors"

// store is what the broker needs of the coordination service. Calls may complete
// in any order, and done may be called before the call returns.
type store interface {
	// get reads a node; errNoNode when it is not there.
	get(path string, done func(data []byte, version int32, err error))
	children(path string, done func(names []string, err error))
	// multi does all or nothing, durably when done is called with nil.
	multi(ops []storeOp, done func(error))
	close(done func(error))
}

type storeOp struct {
	kind    opKind
	path    string
	data    []byte
	version int32 // of set and delete; -1: any
}

type opKind int8

const (
	opCreate opKind = iota
	opSet
	opDelete
)

var (
	errNoNode     = errors.New("no such node")
	errNodeExists = errors.New("node exists")
	errBadVersion = errors.New("node has another version")
)
