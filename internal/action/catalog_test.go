package action_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"

	"boxoffice"
	"boxoffice/internal/action"
	"boxoffice/x402"
)

const (
	knownID   = boxoffice.UUID("0190b8a0-0000-7000-8000-000000000001")
	strangeID = boxoffice.UUID("0190b8a0-0000-7000-8000-000000000002")
	busyID    = boxoffice.UUID("0190b8a0-0000-7000-8000-000000000003")
	brokenID  = boxoffice.UUID("0190b8a0-0000-7000-8000-000000000004")
)

var (
	requester      = boxoffice.Requester{1}
	jobWallet      = common.HexToAddress("0x00000000000000000000000000000000000000a1")
	scheduleWallet = common.HexToAddress("0x00000000000000000000000000000000000000a2")
	unit           = x402.NewUint256(250)
	errStoreAway   = errors.New("the store is away")
)

// originals knows one job and one schedule of one requester.
type originals struct{}

func (originals) JobPayer(_ context.Context, r boxoffice.Requester, id boxoffice.UUID) (common.Address, error) {
	return find(r, id, jobWallet)
}

func (originals) SchedulePayer(_ context.Context, r boxoffice.Requester, id boxoffice.UUID) (common.Address, error) {
	return find(r, id, scheduleWallet)
}

func find(r boxoffice.Requester, id boxoffice.UUID, wallet common.Address) (common.Address, error) {
	switch {
	case id == brokenID:
		return common.Address{}, errStoreAway
	case id == busyID:
		return common.Address{}, &action.Refusal{Reason: "busy", Detail: "it is running"}
	case id != knownID || r != requester:
		return common.Address{}, fmt.Errorf("looking: %w", action.ErrNoOriginal)
	}
	return wallet, nil
}

type judge func(action string, input json.RawMessage) (json.RawMessage, error)

func (j judge) Judge(_ context.Context, action string, input json.RawMessage) (json.RawMessage, error) {
	return j(action, input)
}

func config() action.Config {
	return action.Config{
		Payment: boxoffice.Payment{
			Network:  "eip155:31337",
			Asset:    common.HexToAddress("0x00000000000000000000000000000000000000b1"),
			Amount:   unit,
			PayTo:    common.HexToAddress("0x00000000000000000000000000000000000000b2"),
			Decimals: 18,
		},
		Launches: &boxoffice.Launches{DefaultChainID: 8453, Chains: []boxoffice.LaunchChain{
			{ChainID: 8453, Name: "Base", Kinds: []string{"custom_token", "univ4_hook"}, Pairings: []boxoffice.Pairing{
				{PairWith: "eth", Symbol: "ETH", Name: "Ether", Decimals: 18, Kinds: []string{"custom_token"}},
			}},
			{ChainID: 84532, Name: "Base Sepolia", Testnet: true, Kinds: []string{"evm_contracts", "evm_project"}},
		}},
		Originals: originals{},
	}
}

func catalog(t testing.TB, change func(*action.Config)) *action.Catalog {
	t.Helper()
	c := config()
	if change != nil {
		change(&c)
	}
	made, err := action.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func prepare(c *action.Catalog, name, input string) (action.Prepared, error) {
	return c.Prepare(context.Background(), requester, name, json.RawMessage(input))
}

// problem asserts that err is a problem of that code, and returns it.
func problem(t *testing.T, err error, code boxoffice.Code) *boxoffice.Problem {
	t.Helper()
	p, ok := errors.AsType[*boxoffice.Problem](err)
	if !ok || p.Code != code {
		t.Fatalf("error is %v, want %s", err, code)
	}
	return p
}

func TestPoliciesAreThoseOfTheSpecification(t *testing.T) {
	cheap := x402.NewUint256(7)
	c := catalog(t,
		func(c *action.Config) { c.Prices = map[string]boxoffice.Amount{boxoffice.ActionOracleRequest: cheap} })
	var got []string
	for _, policy := range c.Policies() {
		if err := policy.Validate(); err != nil {
			t.Error(err)
		}
		per := boxoffice.NewPaidAction(policy, c.Limits()[policy.Action]).PricedPer
		got = append(got, fmt.Sprint(policy.Action, " ", policy.Version, " ", policy.QuoteTTLSeconds, " ",
			policy.Payment.Amount, " ", per))
	}
	want := []string{
		"job.open job-1 600 250 ",
		"job.continue job-1 600 250 ",
		"launch.open launch-1 600 250 ",
		"oracle.request oracle-1 600 7 ",
		"workflow.open workflow-1 600 250 ",
		"schedule.create schedule-1 600 250 run",
		"schedule.topup topup-1 600 250 run",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLimitsAreThoseOfTheSpecification(t *testing.T) {
	runs := boxoffice.ActionLimits{
		MinRuns: 1, MaxRuns: 1000000, MinOracleIntervalMinutes: 10, MinJobIntervalMinutes: 30,
	}
	want := map[string]boxoffice.ActionLimits{
		"job.open": {}, "job.continue": {}, "launch.open": {}, "workflow.open": {},
		"oracle.request":  {MinPanelSize: 5, MaxPanelSize: 100},
		"schedule.create": runs, "schedule.topup": runs,
	}
	if diff := cmp.Diff(want, catalog(t, nil).Limits()); diff != "" {
		t.Error(diff)
	}
}

func TestPrice(t *testing.T) {
	most, err := x402.ParseUint256("115792089237316195423570985008687907853269984665640564039457") // 2^256 / 10^18, rounded down
	if err != nil {
		t.Fatal(err)
	}
	schedule := func(runs int) string {
		return fmt.Sprintf(`{"action":"job.open","input":{"objective":"o"},"intervalMinutes":30,"runs":%d}`, runs)
	}
	tests := []struct {
		name, action, input string
		unit                boxoffice.Amount
		want                string // total, unit and runs
		payer               *common.Address
	}{
		{"one unit", "job.open", `{"objective":"o"}`, unit, "250 <nil> 0", nil},
		{"a continuation", "job.continue", fmt.Sprintf(`{"jobId":%q,"input":"i"}`, knownID), unit,
			"250 <nil> 0", &jobWallet},
		{"runs", "schedule.create", schedule(3), unit, "750 250 3", nil},
		{"one run", "schedule.create", schedule(1), unit, "250 250 1", nil},
		{"free runs", "schedule.create", schedule(5), x402.NewUint256(0), "0 0 5", nil},
		{"a top-up", "schedule.topup", fmt.Sprintf(`{"scheduleId":%q,"runs":1000000}`, knownID), unit,
			"250000000 250 1000000", &scheduleWallet},
		{"dear runs", "schedule.create", schedule(1000000), most,
			most.String() + "000000 " + most.String() + " 1000000", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := catalog(t, func(c *action.Config) { c.Prices = map[string]boxoffice.Amount{tt.action: tt.unit} })
			got, err := prepare(c, tt.action, tt.input)
			if err != nil {
				t.Fatal(err)
			}
			if text := fmt.Sprint(got.Amount, " ", got.UnitAmount, " ", got.Runs); text != tt.want {
				t.Errorf("price is %s, want %s", text, tt.want)
			}
			if got.Policy.Payment.Amount != tt.unit || got.Policy.Action != tt.action {
				t.Errorf("policy is %+v", got.Policy)
			}
			if diff := cmp.Diff(tt.payer, got.Payer); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPriceThatNoTokenCanMove(t *testing.T) {
	dear, err := x402.ParseUint256("1" + strings.Repeat("0", 72))
	if err != nil {
		t.Fatal(err)
	}
	c := catalog(t, func(c *action.Config) { c.Payment.Amount = dear })
	for runs, refused := range map[int]bool{100000: false, 115792: false, 115793: true, 1000000: true} {
		_, err := prepare(c, "schedule.topup", fmt.Sprintf(`{"scheduleId":%q,"runs":%d}`, knownID, runs))
		if !refused && err != nil {
			t.Errorf("%d runs: %v", runs, err)
		}
		if refused {
			if p := problem(t, err, boxoffice.ActionRefused); p.Reason != string(boxoffice.RefusedAmountTooLarge) {
				t.Errorf("%d runs: %v", runs, p)
			}
		}
	}
}

func TestOriginals(t *testing.T) {
	inputs := map[string]string{
		"job.continue":   `{"jobId":%q,"input":"go on"}`,
		"schedule.topup": `{"scheduleId":%q,"runs":1}`,
	}
	c := catalog(t, nil)
	for name, format := range inputs {
		t.Run(name, func(t *testing.T) {
			_, err := prepare(c, name, fmt.Sprintf(format, strangeID))
			if p := problem(t, err, boxoffice.ActionRefused); p.Reason != string(boxoffice.RefusedOriginalNotFound) ||
				!strings.Contains(p.Detail, string(strangeID)) {
				t.Error(p)
			}
			_, err = c.Prepare(t.Context(), boxoffice.Requester{2}, name, json.RawMessage(fmt.Sprintf(format, knownID)))
			if p := problem(t, err, boxoffice.ActionRefused); p.Reason != string(boxoffice.RefusedOriginalNotFound) {
				t.Error(p)
			}
			_, err = prepare(c, name, fmt.Sprintf(format, busyID))
			if p := problem(t, err, boxoffice.ActionRefused); p.Reason != "busy" || p.Detail != "it is running" {
				t.Error(p)
			}
			_, err = prepare(c, name, fmt.Sprintf(format, brokenID))
			if p := problem(t, err, boxoffice.TemporarilyUnavailable); !errors.Is(p, errStoreAway) ||
				p.RetryAfter == 0 || strings.Contains(p.Detail, "store") {
				t.Error(p)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	const input = `{"objective":" write it "}`
	tests := []struct {
		name  string
		judge judge
		want  string // the prepared input, or the code of the problem
	}{
		{"agrees", func(_ string, in json.RawMessage) (json.RawMessage, error) { return in, nil },
			`{"objective":"write it","template":"research"}`},
		{"changes", func(string, json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(`{"objective":" better "}`), nil
		},
			`{"objective":"better","template":"research"}`},
		{"refuses", func(string, json.RawMessage) (json.RawMessage, error) {
			return nil, fmt.Errorf("judged: %w", &action.Refusal{Reason: "out_of_scope", Detail: "not our work"})
		}, "action_refused"},
		{"is away", func(string, json.RawMessage) (json.RawMessage, error) { return nil, errors.New("no answer") },
			"temporarily_unavailable"},
		{"answers nothing", func(string, json.RawMessage) (json.RawMessage, error) { return nil, nil },
			"temporarily_unavailable"},
		{"breaks the shape", func(string, json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(`{"objective":""}`), nil
		},
			"temporarily_unavailable"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var asked string
			c := catalog(t, func(c *action.Config) {
				c.Judge = judge(func(name string, in json.RawMessage) (json.RawMessage, error) {
					asked = name + " " + string(in)
					return tt.judge(name, in)
				})
			})
			got, err := prepare(c, "job.open", input)
			if asked != `job.open {"objective":"write it","template":"research"}` {
				t.Errorf("the judge was asked about %s", asked)
			}
			if err == nil {
				if string(got.Input) != tt.want {
					t.Errorf("prepared %s, want %s", got.Input, tt.want)
				}
				return
			}
			if p := problem(t, err, boxoffice.Code(tt.want)); tt.name == "refuses" &&
				(p.Reason != "out_of_scope" || p.Detail != "not our work") {
				t.Error(p)
			}
		})
	}
}

func TestJudgeMayChangeTheRunsThatArePaid(t *testing.T) {
	c := catalog(t, func(c *action.Config) {
		c.Judge = judge(func(string, json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(fmt.Sprintf(`{"scheduleId":%q,"runs":2}`, knownID)), nil
		})
	})
	got, err := prepare(c, "schedule.topup", fmt.Sprintf(`{"scheduleId":%q,"runs":9}`, knownID))
	if err != nil || got.Runs != 2 || got.Amount != x402.NewUint256(500) {
		t.Errorf("runs %d, amount %s, error %v", got.Runs, got.Amount, err)
	}
}

func TestJudgeIsNotAskedAboutWhatIsRefusedAnyway(t *testing.T) {
	c := catalog(t, func(c *action.Config) {
		c.Judge = judge(func(name string, in json.RawMessage) (json.RawMessage, error) {
			t.Errorf("asked about %s %s", name, in)
			return in, nil
		})
	})
	_, err := prepare(c, "job.open", `{}`)
	problem(t, err, boxoffice.InvalidRequest)
	_, err = prepare(c, "job.continue", fmt.Sprintf(`{"jobId":%q,"input":"i"}`, strangeID))
	problem(t, err, boxoffice.ActionRefused)
}

func TestNewNamesTheField(t *testing.T) {
	tests := map[string]func(*action.Config){
		"originals:":     func(c *action.Config) { c.Originals = nil },
		"/scheme":        func(c *action.Config) { c.Payment.Scheme = "exact" },
		"/network":       func(c *action.Config) { c.Payment.Network = "base" },
		"prices:":        func(c *action.Config) { c.Prices = map[string]boxoffice.Amount{"job.close": unit} },
		"default":        func(c *action.Config) { c.Launches.DefaultChainID = 1 },
		"twice":          func(c *action.Config) { c.Launches.Chains[1].ChainID = 8453 },
		"offers no kind": func(c *action.Config) { c.Launches.Chains[1].Kinds = nil },
		`kind "rocket"`:  func(c *action.Config) { c.Launches.Chains[0].Kinds[0] = "rocket" },
		"does not offer": func(c *action.Config) { c.Launches.Chains[0].Pairings[0].Kinds[0] = "evm_project" },
		"no pairWith":    func(c *action.Config) { c.Launches.Chains[0].Pairings[0].PairWith = "" },
		`pairing "e h"`:  func(c *action.Config) { c.Launches.Chains[0].Pairings[0].PairWith = "e h" },
	}
	for want, change := range tests {
		c := config()
		change(&c)
		if _, err := action.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want one with %q", err, want)
		}
	}
}

// What a launch can be had on is what is live, and its default with it.
func TestLiveLaunches(t *testing.T) {
	live := map[uint64]bool{1: true, 2: true}
	c := catalog(t, func(c *action.Config) {
		c.Live = func(chain uint64) bool { return live[chain] }
		c.Launches = &boxoffice.Launches{DefaultChainID: 1, Chains: []boxoffice.LaunchChain{
			{ChainID: 1, Name: "one", Kinds: []string{boxoffice.LaunchCustomToken}},
			{ChainID: 2, Name: "two", Kinds: []string{boxoffice.LaunchCustomToken}},
		}}
	})
	launch := func() error {
		_, err := c.Prepare(t.Context(), requester, boxoffice.ActionLaunchOpen,
			[]byte(`{"objective":"o","kind":"custom_token","chainId":1}`))
		return err
	}
	if err := launch(); err != nil || len(c.Launches().Chains) != 2 {
		t.Errorf("%v on %+v", err, c.Launches())
	}
	live[1] = false
	if now := c.Launches(); len(now.Chains) != 1 || now.DefaultChainID != 2 {
		t.Errorf("%+v", now)
	}
	if problem, ok := errors.AsType[*boxoffice.Problem](launch()); !ok || problem.Code != boxoffice.ActionRefused {
		t.Errorf("a launch on a chain that is away: %v", problem)
	}
	live[2] = false
	if now := c.Launches(); now != nil {
		t.Errorf("%+v", now)
	}
}
