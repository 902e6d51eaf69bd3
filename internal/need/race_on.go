//go:build race

package need

// RaceDetector is true where the race detector is on: it makes sync.Pool forget and
// code allocate, so that counts of allocations say nothing.
const RaceDetector = true
