package boxoffice_test

import (
	"testing"

	"boxoffice"
	"boxoffice/x402"

	"github.com/google/go-cmp/cmp"
)

func TestCapabilitiesRules(t *testing.T) {
	type capabilities = boxoffice.Capabilities
	valid := func() capabilities {
		return capabilities{
			Actions: []boxoffice.Policy{somePolicy()},
			Launches: &boxoffice.Launches{DefaultChainID: 2, Chains: []boxoffice.LaunchChain{
				{ChainID: 2, Name: "Two"}, {ChainID: 1, Name: "One"},
			}},
			Payment: boxoffice.PaymentCapabilities{
				X402Version: x402.Version, Scheme: x402.SchemeExact, AssetTransferMethod: x402.MethodPermit2,
				Network: "eip155:8453",
				Asset: boxoffice.Asset{
					Address:  someAsset,
					Symbol:   "TKN",
					Decimals: 18,
				}, PayTo: somePayTo, Permit2: x402.Permit2, Proxy: x402.ExactProxy,
				MaxTimeoutSeconds: 300, ServiceName: "Boxoffice",
				QuoteApproval: boxoffice.NewQuoteApprovalTemplate("Boxoffice", 8453),
			},
		}
	}
	checkRules(t, valid, []breach[capabilities]{
		{"no actions", func(c *capabilities) { c.Actions = nil }, "/actions"},
		{"action", func(c *capabilities) { c.Actions[0].QuoteTTLSeconds = 0 }, "/actions/0/quoteTtlSeconds"},
		{
			"action's scheme",
			func(c *capabilities) { c.Actions[0].Payment.Scheme = "exact" },
			"/actions/0/payment/scheme",
		},
		{"no launches", func(c *capabilities) { c.Launches = nil }, "ok"},
		{"default chain", func(c *capabilities) { c.Launches.DefaultChainID = 3 }, "/launches/defaultChainId"},
		{"a chain twice", func(c *capabilities) { c.Launches.Chains[1].ChainID = 2 }, "/launches/chains"},
		{"x402Version", func(c *capabilities) { c.Payment.X402Version = 1 }, "/payment/x402Version"},
		{"scheme", func(c *capabilities) { c.Payment.Scheme = "" }, "/payment/scheme"},
		{"method", func(c *capabilities) { c.Payment.AssetTransferMethod = "eip3009" }, "/payment/assetTransferMethod"},
		{"network", func(c *capabilities) { c.Payment.Network = "base" }, "/payment/network"},
		{"decimals", func(c *capabilities) { c.Payment.Asset.Decimals = 256 }, "/payment/asset/decimals"},
		{"timeout", func(c *capabilities) { c.Payment.MaxTimeoutSeconds = 0 }, "/payment/maxTimeoutSeconds"},
		{"service", func(c *capabilities) { c.Payment.ServiceName = "" }, "/payment/serviceName"},
		{
			"another service's domain",
			func(c *capabilities) { c.Payment.ServiceName = "Other" },
			"/payment/quoteApproval/domain",
		},
		{
			"another chain's domain",
			func(c *capabilities) { c.Payment.Network = "eip155:1" },
			"/payment/quoteApproval/domain",
		},
	})
}

func TestPaidAction(t *testing.T) {
	policy := somePolicy()
	job := boxoffice.NewPaidAction(policy, boxoffice.ActionLimits{})
	want := edited(t, policy, func(members map[string]any) { members["limits"] = map[string]any{} })
	if diff := cmp.Diff(string(canonical(t, want)), string(canonical(t, marshal(t, job)))); diff != "" {
		t.Error(diff)
	}
	policy.Action, policy.Version = boxoffice.ActionScheduleTopUp, "topup-1"
	topUp := boxoffice.NewPaidAction(policy, boxoffice.ActionLimits{MinRuns: 1, MaxRuns: 1000000})
	want = edited(t, policy, func(members map[string]any) {
		members["limits"] = map[string]any{"minRuns": 1, "maxRuns": 1000000}
		members["pricedPer"] = "run"
		members["note"] = boxoffice.RunPricedNote
	})
	if diff := cmp.Diff(string(canonical(t, want)), string(canonical(t, marshal(t, topUp)))); diff != "" {
		t.Error(diff)
	}
	checkRules(t, func() boxoffice.PaidAction { return topUp }, []breach[boxoffice.PaidAction]{
		{"policy", func(a *boxoffice.PaidAction) { a.Version = "" }, "/version"},
		{"pricedPer", func(a *boxoffice.PaidAction) { a.PricedPer = "hour" }, "/pricedPer"},
		{"note", func(a *boxoffice.PaidAction) { a.Note = "" }, "/note"},
	})
}
