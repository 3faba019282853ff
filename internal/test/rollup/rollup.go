// Package rollup compares what transactions pay an OP-stack chain for their data. The prices of the chain and of
// Ethereum are left out, so only the ratio of two results of one function means something.
package rollup

import "bytes"

// Ecotone returns what the data fee of a signed transaction is proportional to by the formula of Ecotone: the gas of
// its bytes.
func Ecotone(tx []byte) (gas uint64) {
	for _, b := range tx {
		if b == 0 {
			gas += 4
		} else {
			gas += 16
		}
	}
	return gas
}

// Fjord returns what the data fee of a signed transaction is proportional to by the formula of Fjord: an estimate, in
// millionths of a byte, of the size that the transaction adds to a compressed batch.
func Fjord(tx []byte) uint64 {
	const intercept, each, least = 42_585_600, 836_500, 100_000_000
	return uint64(max(each*compressed(tx)-intercept, least))
}

// compressed returns how many bytes FastLZ makes of the data: a run of up to 32 literal bytes with one byte before it,
// or a reference of two or three bytes to the same bytes at most 8191 bytes before.
func compressed(data []byte) (size int) {
	const window, shortest, longest = 1 << 13, 3, 262
	var seen [1 << 13]int // where the three bytes of a hash were last
	hash := func(at int) uint32 {
		word := uint32(data[at]) | uint32(data[at+1])<<8 | uint32(data[at+2])<<16
		return word * 2654435769 >> 19
	}
	literals := func(n int) {
		size += n/32*33 + n%32
		if n%32 > 0 {
			size++
		}
	}
	literal := 0          // the first byte that is not in size yet
	end := len(data) - 14 // references begin before it
	for at := 2; at < end; {
		key := hash(at)
		from := seen[key]
		seen[key] = at
		if at-from >= window || !bytes.Equal(data[from:from+shortest], data[at:at+shortest]) {
			at++
			continue
		}
		literals(at - literal)
		length := shortest
		for at+length < end+9 && data[from+length] == data[at+length] {
			length++
		}
		size += (length-shortest)/longest*3 + 2
		if (length-shortest)%longest >= 6 {
			size++
		}
		at += length
		literal = at
		seen[hash(at-2)], seen[hash(at-1)] = at-2, at-1
	}
	literals(len(data) - literal)
	return size
}
