// Package syscount counts the system calls that move data, and the bytes they
// move, so that an experiment can state copies per byte (claim C5).
//
// Every attempt counts as a call, also one that ends in EAGAIN, as strace counts
// it. Calls of the Go runtime itself (futex, epoll) are not seen here.
package syscount

import "sync/atomic"

// Kind is a system call.
type Kind int

const (
	Read Kind = iota
	Write
	Writev
	Pread
	Pwrite
	Sendfile
	Fsync
	Fdatasync
	Open
	Close
	Mmap
	Munmap
	Fallocate
	Ftruncate
	Rename
	Unlink
	Accept
	Sendmsg // a write that says more follows at once (MSG_MORE)
	SyncFileRange
	kinds
)

var names = [kinds]string{"read", "write", "writev", "pread64", "pwrite64", "sendfile", "fsync", "fdatasync", "openat", "close", "mmap", "munmap", "fallocate", "ftruncate", "rename", "unlink", "accept4", "sendmsg", "sync_file_range"}

// String is the name that strace gives the call on linux/amd64.
func (k Kind) String() string { return names[k] }

// Kinds lists all kinds, in order.
func Kinds() []Kind {
	all := make([]Kind, kinds)
	for i := range all {
		all[i] = Kind(i)
	}
	return all
}

// Counters is one process's counts. The zero value is ready. A nil *Counters counts nothing.
type Counters struct {
	calls [kinds]atomic.Int64
	// Bytes copied by the CPU between kernel and user space, by direction.
	toUser, toKernel atomic.Int64
	// Bytes that the kernel moved between page cache and socket without user space.
	inKernel atomic.Int64
	// Record bytes handed to consumers' sockets, however they got there.
	delivered atomic.Int64
}

// Call counts n attempts of kind.
func (c *Counters) Call(kind Kind, n int64) {
	if c != nil {
		c.calls[kind].Add(n)
	}
}

// ToUser counts bytes that a read copied from the kernel.
func (c *Counters) ToUser(bytes int64) {
	if c != nil && bytes > 0 {
		c.toUser.Add(bytes)
	}
}

// ToKernel counts bytes that a write copied into the kernel.
func (c *Counters) ToKernel(bytes int64) {
	if c != nil && bytes > 0 {
		c.toKernel.Add(bytes)
	}
}

// InKernel counts bytes that sendfile moved.
func (c *Counters) InKernel(bytes int64) {
	if c != nil && bytes > 0 {
		c.inKernel.Add(bytes)
	}
}

// Delivered counts record bytes that reached a consumer's socket.
func (c *Counters) Delivered(bytes int64) {
	if c != nil && bytes > 0 {
		c.delivered.Add(bytes)
	}
}

// Snapshot is the counters at one moment.
type Snapshot struct {
	Calls                                 [kinds]int64
	ToUser, ToKernel, InKernel, Delivered int64 // bytes
}

// Of gives the count of one kind.
func (s Snapshot) Of(kind Kind) int64 { return s.Calls[kind] }

// Snapshot reads all counters.
func (c *Counters) Snapshot() Snapshot {
	var s Snapshot
	if c == nil {
		return s
	}
	for i := range c.calls {
		s.Calls[i] = c.calls[i].Load()
	}
	s.ToUser, s.ToKernel, s.InKernel, s.Delivered = c.toUser.Load(), c.toKernel.Load(), c.inKernel.Load(), c.delivered.Load()
	return s
}
