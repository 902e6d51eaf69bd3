package sut

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	settleQuiet = time.Second      // without a write or a discard finished or begun
	settleMax   = 40 * time.Second // for a disk that others keep busy
	settleEvery = 50 * time.Millisecond
)

// SettleDisk writes back what is dirty on dir's file system and waits until the
// disks are idle. A file that was deleted is still being discarded seconds later, and what is
// measured meanwhile is a disk that does something else. settled is false when others keep it busy.
func SettleDisk(ctx context.Context, dir string) (settled bool, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return false, fmt.Errorf("sut: %w", err)
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return false, fmt.Errorf("sut: sync the file system of %s: %w", dir, err)
	}
	tick := time.NewTicker(settleEvery)
	defer tick.Stop()
	began := time.Now()
	var last int64
	var since time.Time // the disks have been idle since then; zero: they are not
	for now := began; now.Sub(began) < settleMax; {
		stats, err := os.ReadFile("/proc/diskstats")
		if err != nil {
			return false, fmt.Errorf("sut: %w", err)
		}
		moved, busy := diskWork(stats)
		switch {
		case busy || since.IsZero() || moved-last > settleSectors:
			last, since = moved, now
			if busy {
				since = time.Time{}
			}
		case now.Sub(since) >= settleQuiet:
			return true, nil
		}
		select {
		case now = <-tick.C:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return false, nil
}

// settleSectors is what a machine's small change may write in a quiet second: 2 MiB.
const settleSectors = 4096

// diskWork is how many sectors the disks have written or discarded since boot, and
// whether they are at it. Of /proc/diskstats' fields behind the name the 7th is sectors written, the 9th
// what is in flight, the 14th sectors discarded.
func diskWork(diskstats []byte) (sectors int64, busy bool) {
	for lines := bufio.NewScanner(bytes.NewReader(diskstats)); lines.Scan(); {
		var major, minor int
		var name string
		var n [14]int64
		fields := []any{&major, &minor, &name}
		for i := range n {
			fields = append(fields, &n[i])
		}
		if _, err := fmt.Sscan(lines.Text(), fields...); err != nil {
			continue // before Linux 4.18 nothing is said of discards, and nothing can be waited for
		}
		sectors += n[6] + n[13]
		busy = busy || n[8] > 0
	}
	return sectors, busy
}
