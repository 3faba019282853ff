package rollup

import (
	"bytes"
	"encoding/hex"
	"testing"
)

// The transaction 0x8eb9dd4eb6d33f4dc25fb015919e4b1e9f7542f9b0322bf6622e268cd116b594 of OP Mainnet.
const onOptimism = "02f901550a758302df1483be21b88304743f94f80e51afb613d764fa61751affd3313c190a86bb870151bd62fd12adb8" +
	"e41ef24f3f000000000000000000000000000000000000000000000000000000000000006e000000000000000000000000af88d065e77c8c" +
	"c2239327c5edb3a432268e5831000000000000000000000000000000000000000000000000000000000003c1e50000000000000000000000" +
	"00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000a0000000" +
	"00000000000000000000000000000000000000000000000000000000148c89ed219d02f1a5be012c689b4f5b731827bebe00000000000000" +
	"0000000000c001a033fd89cb37c31b2cba46b6466e040c61fc9b2a3675a7f5f493ebd5ad77c497f8a07cdf65680e238392693019b4092f61" +
	"0222e71b7cec06449cb922b93b6a12744e"

// The sizes are those that the OP stack's own tests expect.
func TestCompressed(t *testing.T) {
	tx, err := hex.DecodeString(onOptimism)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		data []byte
		want int
	}{
		"nothing": {nil, 0}, "zeros": {make([]byte, 1000), 21}, "ones": {bytes.Repeat([]byte{1}, 1000), 21},
		"a transaction": {tx, 202},
	} {
		if got := compressed(test.data); got != test.want {
			t.Errorf("%s: %d bytes, want %d", name, got, test.want)
		}
	}
	if got := Fjord(tx); got != 202*836_500-42_585_600 {
		t.Errorf("by Fjord it is %d", got)
	}
	if got := Fjord(nil); got != 100_000_000 {
		t.Errorf("by Fjord nothing is %d, want the least", got)
	}
	if got := Ecotone([]byte{0, 1, 0xff}); got != 4+16+16 {
		t.Errorf("by Ecotone it is %d", got)
	}
}
