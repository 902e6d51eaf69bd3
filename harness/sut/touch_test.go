package sut

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tidemark-log/tidemark/internal/need"
)

func TestTouchedMemoryIsFreeInPieces(t *testing.T) {
	const more = 128 << 20
	var before, after int64
	for range 5 { // others on this machine take and free memory too: once is proof enough
		var err error
		if before, err = freeInPieces(pieceOrder()); err != nil {
			need.Skip(t, "buddyinfo", err.Error())
		}
		if err := TouchMemory(before/2 + more/2); err != nil {
			t.Fatal(err)
		}
		if after, err = freeInPieces(pieceOrder()); err != nil || after >= before+more/2 {
			break
		}
	}
	if after < before+more/2 {
		t.Errorf("%d MB in pieces before, %d after; %d were to come", before>>20, after>>20, more>>20)
	}
	touched := held.bytes
	if err := TouchMemory(more / 16); err != nil || held.bytes != touched {
		t.Errorf("touched again: %d MB, %v", (held.bytes-touched)>>20, err)
	}
}

func TestOnePageOfEachTouchedBlockIsKept(t *testing.T) {
	const block, blocks = 2 << 20, 5
	m, err := hold(blocks*block-1, block)
	if err != nil || len(m) != blocks*block {
		t.Fatalf("%d bytes, %v", len(m), err)
	}
	page := os.Getpagesize()
	resident := make([]byte, len(m)/page)
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), uintptr(unsafe.Pointer(&resident[0]))); errno != 0 {
		t.Fatal(errno)
	}
	for i, r := range resident {
		if first := i*page%block == 0; first != (r&1 == 1) {
			t.Fatalf("page %d: resident %t", i, r&1 == 1)
		}
	}
}

func TestBuddyinfoIsRead(t *testing.T) {
	const text = "Node 0, zone    DMA32      4      6      0      5 \nNode 0, zone   Normal     10      0      0      1 \n"
	for order, pages := range map[int]int64{1: 14, 2: 26, 3: 26, 4: 26 + 6*8, 9: 26 + 6*8} {
		if n, err := piecesOf(text, order); err != nil || n != pages*int64(os.Getpagesize()) {
			t.Errorf("below order %d: %d bytes, %v; expected %d pages", order, n, err, pages)
		}
	}
	for _, bad := range []string{"what", "Node 0, zone DMA x"} {
		if _, err := piecesOf(bad, 9); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}
