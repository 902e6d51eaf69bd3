// Package crc32c computes the CRC-32C (Castagnoli) of record batches.
//
// It gives what hash/crc32 gives, and is there because the checksum was a sixth of
// what a produce request of 64 KiB costs. hash/crc32 puts eight bytes at a time
// through the CRC32 instruction, which first-generation EPYC does not pipeline:
// 5.5 GB/s. Here a buffer is cut into a part that is folded with PCLMULQDQ, four vectors
// at a time, and three lanes that go through CRC32 meanwhile: 9 GB/s there with vectors of
// 16 bytes; 34 GB/s with vectors of 32 on third-generation EPYC, where hash/crc32 makes 21. The method is that of
// V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
// Instruction" (Intel, 2009).
package crc32c

import "hash/crc32"

var table = crc32.MakeTable(crc32.Castagnoli)

// Checksum is crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)).
func Checksum(p []byte) uint32 { return Update(0, p) }

// Update adds p to the checksum crc of what came before it.
func Update(crc uint32, p []byte) uint32 {
	crc, p = updateLarge(crc, p)
	if len(p) == 0 {
		return crc
	}
	return crc32.Update(crc, table, p)
}
