package boxoffice_test

import (
	"fmt"
	"math/big"
	"testing"

	"boxoffice"
	"boxoffice/x402"

	"pgregory.net/rapid"
)

func TestUnits(t *testing.T) {
	tests := []struct {
		atomic   uint64
		decimals int
		text     string
	}{
		{0, 18, "0"}, {1, 0, "1"}, {1, 6, "0.000001"}, {1_500_000, 6, "1.5"}, {1_000_000, 6, "1"},
		{12_345_678, 6, "12.345678"}, {100, 2, "1"}, {10, 2, "0.1"}, {7, 255, "0." + zeros(254) + "7"},
	}
	for _, test := range tests {
		amount := x402.NewUint256(test.atomic)
		if got := boxoffice.FormatUnits(amount, test.decimals); got != test.text {
			t.Errorf("%d with %d decimals is %s, want %s", test.atomic, test.decimals, got, test.text)
		}
		if got, err := boxoffice.ParseUnits(test.text, test.decimals); err != nil || got != amount {
			t.Errorf("%s with %d decimals reads as %v, %v", test.text, test.decimals, got, err)
		}
	}
	for _, text := range []string{
		"", ".", "1.", ".5", "-1", "+1", "1e3", "1,5", " 1", "0x1", "1.2.3", "0.0000001", "١", "1" + zeros(80),
	} {
		if got, err := boxoffice.ParseUnits(text, 6); err == nil {
			t.Errorf("%q reads as %v", text, got)
		}
	}
}

func zeros(n int) string { return fmt.Sprintf("%0*d", n, 0) }

func TestUnitsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount, err := x402.Uint256FromBig(new(big.Int).SetBytes(rapid.SliceOfN(rapid.Byte(), 0, 32).Draw(t, "amount")))
		if err != nil {
			t.Fatal(err)
		}
		decimals := rapid.IntRange(0, 255).Draw(t, "decimals")
		if got, err := boxoffice.ParseUnits(boxoffice.FormatUnits(amount, decimals), decimals); err != nil ||
			got != amount {
			t.Errorf("%v with %d decimals came back as %v, %v", amount, decimals, got, err)
		}
	})
}
