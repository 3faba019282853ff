package x402

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	namespace        = "eip155:"
	maxNetworkLength = 24 // docs/protocol.md §2.2
)

// Network returns the CAIP-2 name of a chain, eip155:<chainID>.
func Network(chainID uint64) string { return namespace + strconv.FormatUint(chainID, 10) }

// ChainID returns the chain that a CAIP-2 name ^eip155:[1-9][0-9]*$ of at most
// 24 characters stands for (docs/protocol.md §2.2).
func ChainID(network string) (uint64, error) {
	digits, ok := strings.CutPrefix(network, namespace)
	if ok && len(network) <= maxNetworkLength {
		chainID, err := strconv.ParseUint(digits, 10, 64)
		if err == nil && chainID > 0 && Network(chainID) == network {
			return chainID, nil
		}
	}
	return 0, fmt.Errorf("network must be eip155:<chainId> of at most %d characters", maxNetworkLength)
}

// Mismatch returns the path of the first field in which r and other differ,
// such as payTo or extra.name, and "" if they are the same terms. Addresses are
// compared by their bytes.
func (r Requirements) Mismatch(other Requirements) (field string) {
	switch {
	case r.Scheme != other.Scheme:
		return "scheme"
	case r.Network != other.Network:
		return "network"
	case r.Asset != other.Asset:
		return "asset"
	case r.Amount != other.Amount:
		return "amount"
	case r.PayTo != other.PayTo:
		return "payTo"
	case r.MaxTimeoutSeconds != other.MaxTimeoutSeconds:
		return "maxTimeoutSeconds"
	case (r.Extra == nil) != (other.Extra == nil):
		return "extra"
	case r.Extra == nil:
		return ""
	case r.Extra.AssetTransferMethod != other.Extra.AssetTransferMethod:
		return "extra.assetTransferMethod"
	case r.Extra.Name != other.Extra.Name:
		return "extra.name"
	case r.Extra.Version != other.Extra.Version:
		return "extra.version"
	}
	return ""
}
