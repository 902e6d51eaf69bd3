package sut

import "context"

// DiskRegime is a measurement of what is written at the rate of a disk. Whoever is held against another there, a broker, a
// bare server, a file writer, is measured by it: from the same moment, in the same bytes, and with the same words where something was not so.
type DiskRegime struct {
	*Throttling
	settled  bool
	from, to int64 // bytes dirty when the measured part opened and closed
	err      error
}

// EnterDiskRegime readies memory and lets the disk below dir come to rest. Write from then on, and measure from when Begun says so.
func EnterDiskRegime(ctx context.Context, dir string) (*DiskRegime, error) {
	limit, err := DirtyLimit()
	if err != nil {
		return nil, err
	}
	if err := TouchMemory(limit); err != nil { // what is dirty is what the page cache will hold
		return nil, err
	}
	settled, err := SettleDisk(ctx, dir)
	if err != nil {
		return nil, err
	}
	throttling, err := NewThrottling()
	return &DiskRegime{Throttling: throttling, settled: settled}, err
}

// Open begins the measured part, and Close ends it.
func (d *DiskRegime) Open() { d.from, d.err = d.dirty() }

// Close ends the measured part.
func (d *DiskRegime) Close() {
	if d.err == nil {
		d.to, d.err = d.dirty()
	}
}

// Reached is how many bytes have reached the disk in the measured part, in which so many were written: what memory took
// up meanwhile has not, and what it gave off was written before. A writer a little faster than its disk takes long to fill the memory, and without this would seem to beat the disk.
func (d *DiskRegime) Reached(written int64) (int64, error) { return written - (d.to - d.from), d.err }

// Warnings say, after the measurement, what keeps its rate from being that of the disk alone. writer names who wrote.
func (d *DiskRegime) Warnings(writer string) []string {
	var warnings []string
	if !d.settled {
		warnings = append(warnings, writer+": the disk did not come to rest before the measurement")
	}
	if !d.Filled() {
		warnings = append(warnings, writer+": memory was not full when the measurement began: where the disk is the faster, the rate is the writer's own")
	}
	return warnings
}
