// Package load sends work to a broker and times it.
//
// Two drivers: raw (batches prepared once, plain TCP, N requests in flight: what
// the broker alone can do) and kgo (franz-go: what a user's program does). Both
// take latency from the intended send time, so that a stall shows in the latency
// of everything that should have been sent meanwhile.
package load

import "math/rand/v2"

// runBytes is the grain at which a payload switches between random and repeated bytes.
const runBytes = 8

// phrase is what the repeated parts of a payload say.
const phrase = "tidemark log record, kept in order; "

// Payload gives n bytes with close to entropy bits per byte (0…8): runs of
// random bytes and runs of a phrase, in that proportion. Every codec can find
// the phrase and none the rest, so the best compressed size is about n*entropy/8.
func Payload(rng *rand.Rand, n int, entropy float64) []byte {
	b := make([]byte, n)
	share, due := entropy/8, 0.0
	for at := 0; at < n; at += runBytes {
		run := b[at:min(at+runBytes, n)]
		if due += share; due >= 1-1e-9 {
			due--
			fillRandom(rng, run)
			continue
		}
		for i := range run {
			run[i] = phrase[(at+i)%len(phrase)]
		}
	}
	return b
}

func fillRandom(rng *rand.Rand, b []byte) {
	x := rng.Uint64()
	for i := range b {
		b[i] = byte(x >> (8 * i))
	}
}

// NewRand is the random source of a seed and a stream of it, so that each driver has its own.
func NewRand(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }
