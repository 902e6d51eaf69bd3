package sut

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tidemark-log/tidemark/harness/sample"
)

// TouchMemory makes sure that the next n bytes of page cache come from memory
// that the host has given already, and that stay given.
//
// On a virtual machine the first use of a page is a fault that the host must
// serve, at ten times the cost of the write it is part of. Once is not enough: with
// free page reporting the guest's kernel hands whole free blocks (2 MiB and up) back to the host
// within seconds, and a file that was deleted is such blocks. So the memory
// is touched, and of each block one page is kept: what is free around it can no longer join
// into a block to be reported, and the kernel's allocator takes the smallest free piece first.
//
// It looks at how much lies in such pieces now, so a call with enough of them costs
// microseconds: make one right before each measurement that writes page cache. The pages kept are n/256
// or so, until this process ends.
func TouchMemory(n int64) error {
	held.Lock()
	defer held.Unlock()
	order := pieceOrder()
	pieces, err := freeInPieces(order)
	if err != nil {
		pieces = held.bytes // nobody tells: what was touched once counts
	}
	// A request for a large folio finds only the larger half of each block good enough.
	missing := 2*n - pieces
	if missing > touchMax() {
		missing = touchMax()
	}
	if missing <= 0 {
		return nil
	}
	kept, err := hold(missing, int64(os.Getpagesize())<<order)
	held.bytes += int64(len(kept))
	return err
}

// touchTimeMax bounds what one call may take where the host is slow to give memory.
const touchTimeMax = 10 * time.Second

// held is what TouchMemory keeps, until the process ends.
var held struct {
	sync.Mutex
	bytes int64 // touched, of which a page of each block is kept
}

// blockOrder is the order of the block that is reported where the kernel does not say: 2 MiB of 4 KiB pages.
const blockOrder = 9

// pieceOrder is the order of the smallest free block that may be given back to the host.
func pieceOrder() int {
	order, reporting := PageReporting()
	if !reporting || order > blockOrder {
		return blockOrder
	}
	return max(order, 1)
}

// PageReporting says whether the kernel tells its host which memory is free, and from which order of block on.
func PageReporting() (order int, on bool) {
	b, err := os.ReadFile("/sys/module/page_reporting/parameters/page_reporting_order")
	if err != nil {
		return 0, false
	}
	order, err = strconv.Atoi(strings.TrimSpace(string(b)))
	const orderMax = 20 // above it: -1, or a number that stands for it, until a host asks for reports
	return order, err == nil && order >= 0 && order < orderMax
}

// touchMax is how much may be touched: half of what is free, here and in our own memory cgroup.
func touchMax() int64 {
	v, err := sample.VMStat("nr_free_pages")
	if err != nil {
		return 0
	}
	most := v[0] * int64(os.Getpagesize())
	group, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return most / 2
	}
	for line := range strings.Lines(string(group)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		limit, err := readNumber("/sys/fs/cgroup" + path + "/memory.max")
		used, err2 := readNumber("/sys/fs/cgroup" + path + "/memory.current")
		if err == nil && err2 == nil {
			most = min(most, max(0, limit-used))
		}
	}
	return most / 2
}

func readNumber(file string) (int64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64) // "max" is no number
}

// freeInPieces is how many bytes are free in pieces smaller than order.
func freeInPieces(order int) (int64, error) {
	b, err := os.ReadFile("/proc/buddyinfo")
	if err != nil {
		return 0, err
	}
	return piecesOf(string(b), order)
}

// piecesOf reads /proc/buddyinfo: for each zone, how many free pieces there are of each order.
func piecesOf(buddyinfo string, order int) (int64, error) {
	var pages int64
	for line := range strings.Lines(buddyinfo) {
		_, counts, ok := strings.Cut(line, "zone")
		if !ok {
			return 0, fmt.Errorf("sut: /proc/buddyinfo has a line %q", line)
		}
		fields := strings.Fields(counts)[1:]
		for i, field := range fields[:min(order, len(fields))] {
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("sut: /proc/buddyinfo: %w", err)
			}
			pages += n << i
		}
	}
	return pages * int64(os.Getpagesize()), nil
}

// hold uses n bytes of memory and frees all of it but the first page of each block. The mapping stays.
func hold(n, block int64) (kept []byte, err error) {
	n = (n + block - 1) / block * block
	page := int64(os.Getpagesize())
	m, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("sut: touch memory: %w", err)
	}
	// Huge pages lie on whole blocks and come by one fault each. Where there are none, small ones follow each other nearly as well.
	unix.Madvise(m, unix.MADV_HUGEPAGE)
	began := time.Now()
	for off := int64(0); off < n; off += page {
		if off%(64<<20) == 0 && time.Since(began) > touchTimeMax {
			n = off // the rest was never used, and costs nothing
			break
		}
		m[off] = 1
	}
	unix.Madvise(m[:n], unix.MADV_NOHUGEPAGE) // khugepaged must not fill the gaps again
	for off := int64(0); off < n; off += block {
		rest := m[off+page : off+block]
		// MADV_FREE splits a huge page at once; MADV_DONTNEED alone would leave it whole until memory is short.
		unix.Madvise(rest, unix.MADV_FREE)
		if err := unix.Madvise(rest, unix.MADV_DONTNEED); err != nil {
			return m[:n], fmt.Errorf("sut: free touched memory: %w", err)
		}
	}
	return m[:n], nil
}
