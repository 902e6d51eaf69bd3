package sut

import "testing"

func TestWritesAndDiscardsAreWork(t *testing.T) {
	const idle = " 254 0 vda 10 0 80 5 7 0 100 5 0 9 9 3 0 50 2 0 0\n 253 0 zram0 1 0 8 0 1 0 8 0 0 0 0 0 0 0 0 0 0\n"
	if sectors, busy := diskWork([]byte(idle)); sectors != 158 || busy {
		t.Errorf("%d sectors, busy %t", sectors, busy)
	}
	if _, busy := diskWork([]byte(" 254 0 vda 10 0 80 5 7 0 100 5 2 9 9 3 0 50 2 0 0\n")); !busy {
		t.Error("two requests in flight are no work")
	}
}

func TestADiskSettles(t *testing.T) {
	// Others may use it: that it comes back, and soon, is all that can be asked.
	if _, err := SettleDisk(t.Context(), t.TempDir()); err != nil {
		t.Error(err)
	}
}
