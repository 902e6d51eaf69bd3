//go:build !purego

#include "textflag.h"

// Go's assembler knows VPCLMULQDQ on 32-byte vectors in its AVX-512 encoding alone; this is
// AVX's. In each of these the vector is multiplied by Y7: LOW puts the product of the low
// halves elsewhere, HIGH that of the high halves in its own place.
#define LOW_Y0_Y8   BYTE $0xC4; BYTE $0x63; BYTE $0x7D; BYTE $0x44; BYTE $0xC7; BYTE $0x00
#define LOW_Y1_Y9   BYTE $0xC4; BYTE $0x63; BYTE $0x75; BYTE $0x44; BYTE $0xCF; BYTE $0x00
#define LOW_Y2_Y10  BYTE $0xC4; BYTE $0x63; BYTE $0x6D; BYTE $0x44; BYTE $0xD7; BYTE $0x00
#define LOW_Y3_Y11  BYTE $0xC4; BYTE $0x63; BYTE $0x65; BYTE $0x44; BYTE $0xDF; BYTE $0x00
#define HIGH_Y0     BYTE $0xC4; BYTE $0xE3; BYTE $0x7D; BYTE $0x44; BYTE $0xC7; BYTE $0x11
#define HIGH_Y1     BYTE $0xC4; BYTE $0xE3; BYTE $0x75; BYTE $0x44; BYTE $0xCF; BYTE $0x11
#define HIGH_Y2     BYTE $0xC4; BYTE $0xE3; BYTE $0x6D; BYTE $0x44; BYTE $0xD7; BYTE $0x11
#define HIGH_Y3     BYTE $0xC4; BYTE $0xE3; BYTE $0x65; BYTE $0x44; BYTE $0xDF; BYTE $0x11

// func hasVPCLMULQDQ() bool
TEXT ·hasVPCLMULQDQ(SB), NOSPLIT, $0-1
	MOVL $7, AX
	XORL CX, CX
	CPUID
	SHRL $10, CX
	ANDL $1, CX
	MOVB CX, ret+0(FP)
	RET

// func foldWide(crc uint32, p *byte, k int, c *constants) uint32
//
// Registers as in fold, but for the vector remainder in Y0-Y3 and the multipliers in Y7.
TEXT ·foldWide(SB), NOSPLIT, $0-36
	MOVL crc+0(FP), AX
	MOVQ p+8(FP), SI
	MOVQ k+16(FP), CX
	MOVQ c+24(FP), DX
	MOVQ CX, R8
	SHLQ $7, R8
	LEAQ (SI)(R8*1), R9
	MOVQ CX, BX
	SHLQ $5, BX
	LEAQ (R9)(BX*1), R10
	LEAQ (R10)(BX*1), R11
	XORL R12, R12
	XORL R13, R13
	XORL DI, DI
	VMOVQ AX, X4 // and zeros to the end of Y4
	VMOVDQU (SI), Y0
	VPXOR Y4, Y0, Y0
	VMOVDQU 32(SI), Y1
	VMOVDQU 64(SI), Y2
	VMOVDQU 96(SI), Y3
	VMOVDQU (DX), Y7
	DECQ CX
	JZ   last

loop:
	LOW_Y0_Y8
	HIGH_Y0
	CRC32Q (R9), R12
	LOW_Y1_Y9
	CRC32Q (R10), R13
	HIGH_Y1
	CRC32Q (R11), DI
	LOW_Y2_Y10
	HIGH_Y2
	CRC32Q 8(R9), R12
	LOW_Y3_Y11
	CRC32Q 8(R10), R13
	HIGH_Y3
	CRC32Q 8(R11), DI
	VPXOR 128(SI), Y8, Y8
	VPXOR Y8, Y0, Y0
	CRC32Q 16(R9), R12
	VPXOR 160(SI), Y9, Y9
	CRC32Q 16(R10), R13
	VPXOR Y9, Y1, Y1
	CRC32Q 16(R11), DI
	VPXOR 192(SI), Y10, Y10
	VPXOR Y10, Y2, Y2
	CRC32Q 24(R9), R12
	VPXOR 224(SI), Y11, Y11
	CRC32Q 24(R10), R13
	VPXOR Y11, Y3, Y3
	CRC32Q 24(R11), DI
	ADDQ $128, SI
	ADDQ $32, R9
	ADDQ $32, R10
	ADDQ $32, R11
	DECQ CX
	JNZ  loop

last:
	CRC32Q (R9), R12
	CRC32Q (R10), R13
	CRC32Q (R11), DI
	CRC32Q 8(R9), R12
	CRC32Q 8(R10), R13
	CRC32Q 8(R11), DI
	CRC32Q 16(R9), R12
	CRC32Q 16(R10), R13
	CRC32Q 16(R11), DI
	CRC32Q 24(R9), R12
	CRC32Q 24(R10), R13
	CRC32Q 24(R11), DI

	// Four vectors of 32 bytes to one.
	VMOVDQU 32(DX), Y7
	LOW_Y0_Y8
	HIGH_Y0
	VPXOR Y8, Y1, Y1
	VPXOR Y0, Y1, Y1
	LOW_Y1_Y9
	HIGH_Y1
	VPXOR Y9, Y2, Y2
	VPXOR Y1, Y2, Y2
	LOW_Y2_Y10
	HIGH_Y2
	VPXOR Y10, Y3, Y3
	VPXOR Y2, Y3, Y3
	// Its two halves to one.
	VEXTRACTI128 $1, Y3, X2
	VZEROUPPER
	MOVOU 64(DX), X5
	MOVO X3, X6
	PCLMULQDQ $0x00, X5, X3
	PCLMULQDQ $0x11, X5, X6
	PXOR X3, X2
	PXOR X6, X2

	// 16 bytes to a remainder.
	MOVQ X2, R8
	PSRLDQ $8, X2
	MOVQ X2, BX
	XORL AX, AX
	CRC32Q R8, AX
	CRC32Q BX, AX

	// Past each lane in turn: multiply, reduce, add.
	MOVQ 80(DX), X5
	MOVQ AX, X0
	PCLMULQDQ $0x00, X5, X0
	MOVQ X0, R8
	XORL AX, AX
	CRC32Q R8, AX
	XORL R12, AX
	MOVQ AX, X0
	PCLMULQDQ $0x00, X5, X0
	MOVQ X0, R8
	XORL AX, AX
	CRC32Q R8, AX
	XORL R13, AX
	MOVQ AX, X0
	PCLMULQDQ $0x00, X5, X0
	MOVQ X0, R8
	XORL AX, AX
	CRC32Q R8, AX
	XORL DI, AX
	MOVL AX, ret+32(FP)
	RET
