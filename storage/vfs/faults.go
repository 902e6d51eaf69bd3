package vfs

import (
	"fmt"
	"slices"
	"sync/atomic"
)

// injected marks err, or a plain I/O error when it is nil.
func injected(op Op, err error) error {
	if err == nil {
		return fmt.Errorf("%w: %s", ErrInjected, op)
	}
	return fmt.Errorf("%w: %s: %w", ErrInjected, op, err)
}

// Nth fails one operation: the n-th of its kinds. A test that fails operation 1,
// 2, 3, … until none is met has tried every place where the world can fail:
//
//	for n := int64(1); ; n++ {
//		nth := vfs.FailNth(n, nil)
//		run(vfs.WithHook(disk, nth.Hook))
//		if !nth.Met() {
//			break
//		}
//	}
type Nth struct {
	n     int64
	err   error
	kinds []OpKind // none: all
	keep  int      // bytes of a write that happen; -1: the write does not happen
	seen  atomic.Int64
	op    atomic.Pointer[Op]
}

// FailNth fails the n-th operation, counted from 1, of the given kinds or of all,
// with err (nil: a plain I/O error), marked ErrInjected.
func FailNth(n int64, err error, kinds ...OpKind) *Nth {
	return &Nth{n: n, err: err, kinds: kinds, keep: -1}
}

// ShortWrite lets keep bytes of the n-th write happen and then fails it.
func ShortWrite(n int64, keep int) *Nth {
	return &Nth{n: n, kinds: []OpKind{OpWrite}, keep: keep}
}

// Hook is for WithHook.
func (f *Nth) Hook(op Op) error {
	if len(f.kinds) > 0 && !slices.Contains(f.kinds, op.Kind) {
		return nil
	}
	if f.seen.Add(1) != f.n {
		return nil
	}
	f.op.Store(&op)
	if err := injected(op, f.err); op.Kind != OpWrite || f.keep < 0 {
		return err
	} else {
		return &Partial{Bytes: f.keep, Err: err}
	}
}

// Met is true once the operation came and was failed.
func (f *Nth) Met() bool { return f.op.Load() != nil }

// Op is the operation that was failed, for messages.
func (f *Nth) Op() (op Op) {
	if p := f.op.Load(); p != nil {
		op = *p
	}
	return op
}

// DiskFull is a Hook that lets bytes be written and then answers ErrNoSpace, the
// last write being cut short where the space ends. Nothing gives space back.
func DiskFull(bytes int64) Hook {
	var written atomic.Int64
	return func(op Op) error {
		if op.Kind != OpWrite {
			return nil
		}
		before := written.Add(int64(op.Len)) - int64(op.Len)
		if free := max(0, bytes-before); free < int64(op.Len) {
			return &Partial{Bytes: int(free), Err: injected(op, ErrNoSpace)}
		}
		return nil
	}
}
