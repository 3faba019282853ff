package action_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"boxoffice"
	"boxoffice/internal/action"
)

func TestPreparedInputs(t *testing.T) {
	start := boxoffice.Timestamp(1795176000123)
	tests := []struct {
		name, action, input, want string
		value                     any
	}{
		{"job with defaults", "job.open", `{"objective":"  write it\n"}`,
			`{"objective":"write it","template":"research"}`,
			boxoffice.JobOpen{Objective: "write it", Template: "research"}},
		{"job with everything", "job.open",
			`{"template":"skill:build-website","objective":"o","repoUrl":"https://git.example:8443/a/b%20c.git","context":[{"text":" t ","name":" n "}]}`,
			`{"context":[{"name":"n","text":"t"}],"objective":"o","repoUrl":"https://git.example:8443/a/b%20c.git","template":"skill:build-website"}`,
			boxoffice.JobOpen{Objective: "o", Template: "skill:build-website",
				RepoURL: "https://git.example:8443/a/b%20c.git",
				Context: []boxoffice.Document{{Name: "n", Text: "t"}}}},
		{"job in NFC, without an empty context", "job.open", `{"objective":"cafe\u0301 <&>","context":[]}`,
			`{"objective":"café <&>","template":"research"}`,
			boxoffice.JobOpen{Objective: "café <&>", Template: "research"}},
		{"continuation, UUID in capitals", "job.continue",
			`{"jobId":"0190B8A0-0000-7000-8000-000000000001","input":"\tgo on "}`,
			`{"input":"go on","jobId":"0190b8a0-0000-7000-8000-000000000001"}`,
			boxoffice.JobContinue{JobID: knownID, Input: "go on"}},
		{"launch", "launch.open",
			`{"objective":"o","kind":"custom_token","chainId":8453,"pairWith":"eth","name":" Box Office ","symbol":"BOX"}`,
			`{"chainId":8453,"kind":"custom_token","name":"Box Office","objective":"o","pairWith":"eth","symbol":"BOX"}`,
			boxoffice.LaunchOpen{Objective: "o", Kind: "custom_token", ChainID: 8453, PairWith: "eth",
				Name: "Box Office", Symbol: "BOX"}},
		{"launch without a pairing", "launch.open", `{"objective":"o","kind":"evm_project","chainId":84532}`,
			`{"chainId":84532,"kind":"evm_project","objective":"o"}`,
			boxoffice.LaunchOpen{Objective: "o", Kind: "evm_project", ChainID: 84532}},
		{"oracle", "oracle.request", `{"question":" why? ","panelSize":5.0,"options":[" a ","b"],"context":" c "}`,
			`{"context":"c","options":["a","b"],"panelSize":5,"question":"why?"}`,
			boxoffice.OracleRequest{Question: "why?", PanelSize: 5, Options: []string{"a", "b"}, Context: "c"}},
		{"oracle, number with an exponent", "oracle.request", `{"question":"why?","panelSize":1e2}`,
			`{"panelSize":100,"question":"why?"}`,
			boxoffice.OracleRequest{Question: "why?", PanelSize: 100}},
		{"chain, filled in its order", "workflow.open",
			`{"objective":"o","shape":"chain","nodes":[{"id":"a","objective":"1"},{"id":"b","objective":"2","template":"audit"},{"id":"c","objective":"3"}]}`,
			`{"nodes":[{"after":[],"id":"a","objective":"1","template":"research"},{"after":["a"],"id":"b","objective":"2","template":"audit"},{"after":["b"],"id":"c","objective":"3","template":"research"}],"objective":"o","shape":"chain"}`,
			boxoffice.WorkflowOpen{Objective: "o", Shape: "chain", Nodes: []boxoffice.WorkflowNode{
				{ID: "a", Objective: "1", Template: "research", After: []string{}},
				{ID: "b", Objective: "2", Template: "audit", After: []string{"a"}},
				{ID: "c", Objective: "3", Template: "research", After: []string{"b"}},
			}}},
		{"dag, where nothing waits by itself", "workflow.open",
			`{"objective":"o","shape":"dag","nodes":[{"id":"a","objective":"1","after":["b"]},{"id":"b","objective":"2"}]}`,
			`{"nodes":[{"after":["b"],"id":"a","objective":"1","template":"research"},{"after":[],"id":"b","objective":"2","template":"research"}],"objective":"o","shape":"dag"}`,
			boxoffice.WorkflowOpen{Objective: "o", Shape: "dag", Nodes: []boxoffice.WorkflowNode{
				{ID: "a", Objective: "1", Template: "research", After: []string{"b"}},
				{ID: "b", Objective: "2", Template: "research", After: []string{}},
			}}},
		{"schedule of jobs, its input prepared, its start in UTC", "schedule.create",
			`{"action":"job.open","input":{"objective":" o "},"intervalMinutes":30,"runs":1,"startAt":"2026-11-20T13:20:00.1239+01:20"}`,
			`{"action":"job.open","input":{"objective":"o","template":"research"},"intervalMinutes":30,"runs":1,"startAt":"2026-11-20T12:00:00.123Z"}`,
			boxoffice.ScheduleCreate{Action: "job.open",
				Input: json.RawMessage(`{"objective":"o","template":"research"}`), IntervalMinutes: 30, Runs: 1,
				StartAt: &start}},
		{"schedule of oracles", "schedule.create",
			`{"action":"oracle.request","input":{"question":"q ","panelSize":100},"intervalMinutes":10,"runs":1000000}`,
			`{"action":"oracle.request","input":{"panelSize":100,"question":"q"},"intervalMinutes":10,"runs":1000000}`,
			boxoffice.ScheduleCreate{Action: "oracle.request",
				Input: json.RawMessage(`{"panelSize":100,"question":"q"}`), IntervalMinutes: 10, Runs: 1000000}},
		{"schedule that catches up", "schedule.create",
			`{"action":"job.open","input":{"objective":"o"},"intervalMinutes":30,"runs":1,"missed":"catch_up"}`,
			`{"action":"job.open","input":{"objective":"o","template":"research"},"intervalMinutes":30,"missed":"catch_up","runs":1}`,
			boxoffice.ScheduleCreate{Action: "job.open",
				Input: json.RawMessage(`{"objective":"o","template":"research"}`), IntervalMinutes: 30, Runs: 1,
				Missed: "catch_up"}},
		{"top-up", "schedule.topup", `{"scheduleId":"0190B8A0-0000-7000-8000-000000000001","runs":7}`,
			`{"runs":7,"scheduleId":"0190b8a0-0000-7000-8000-000000000001"}`,
			boxoffice.ScheduleTopUp{ScheduleID: knownID, Runs: 7}},
	}
	c := catalog(t, nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := prepare(c, tt.action, tt.input)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got.Input)); diff != "" {
				t.Error(diff)
			}
			value, err := action.Decode(tt.action, got.Input)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.value, value); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A typed input without its optional members is taken as it is marshalled.
func TestTypedInputs(t *testing.T) {
	job := boxoffice.JobOpen{Objective: "o"}
	schedule, err := boxoffice.NewScheduleCreate(job, 30, 1)
	if err != nil {
		t.Fatal(err)
	}
	c := catalog(t, nil)
	for _, input := range []boxoffice.Input{
		job,
		boxoffice.JobContinue{JobID: knownID, Input: "go on"},
		boxoffice.LaunchOpen{Objective: "o", Kind: boxoffice.LaunchCustomToken, ChainID: 8453},
		boxoffice.OracleRequest{Question: "why?", PanelSize: 5},
		boxoffice.WorkflowOpen{Objective: "o", Shape: boxoffice.ShapeChain, Nodes: []boxoffice.WorkflowNode{
			{ID: "a", Objective: "1"}, {ID: "b", Objective: "2"},
		}},
		schedule,
		boxoffice.ScheduleTopUp{ScheduleID: knownID, Runs: 7},
		boxoffice.RawInput{Action: boxoffice.ActionJobOpen, JSON: json.RawMessage(`{"objective":"o"}`)},
	} {
		document, err := json.Marshal(input)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := prepare(c, input.ActionName(), string(document)); err != nil {
			t.Errorf("%T: %s: %v", input, document, err)
		}
	}
}

// chars returns n characters of two bytes each.
func chars(n int) string { return strings.Repeat("é", n) }

func TestInvalidInputs(t *testing.T) {
	node := func(id string) string { return fmt.Sprintf(`{"id":%q,"objective":"o"}`, id) }
	nodes := func(n int) string {
		list := make([]string, n)
		for i := range list {
			list[i] = node(fmt.Sprint("n", i))
		}
		return `{"objective":"o","shape":"dag","nodes":[` + strings.Join(list, ",") + `]}`
	}
	repo := func(url string) string { return fmt.Sprintf(`{"objective":"o","repoUrl":%q}`, url) }
	schedule := func(action, input, rest string) string {
		return fmt.Sprintf(`{"action":%q,"input":%s,%s}`, action, input, rest)
	}
	const job, oracle = `{"objective":"o"}`, `{"question":"q","panelSize":5}`
	const badRepo = "/input/repoUrl must be an https URL with a path and without credentials, query or fragment"
	const badTime = "/input/startAt must be an RFC 3339 time of the years 1970 to 9999, like 2026-11-20T12:00:00.000Z"
	tests := []struct{ action, input, want string }{
		{"job.close", `{}`,
			"/action must be one of job.open, job.continue, launch.open, oracle.request, workflow.open, schedule.create, schedule.topup"},

		{"job.open", ``, "/input ..."},
		{"job.open", `null`, "/input must be an object"},
		{"job.open", `[]`, "/input must be an object"},
		{"job.open", `{"objective":"o","objective":"p"}`, "/input/objective ..."},
		{"job.open", "{\"objective\":\"\xff\"}", "/input/objective ..."},
		{"job.open", `{"objective":"\ud800"}`, "/input/objective ..."},
		{"job.open", `{"objective":"o"}{}`, "/input ..."},
		{"job.open", `{}`, "/input/objective is required"},
		{"job.open", `{"objective":null}`, "/input/objective must be a string"},
		{"job.open", `{"objective":1}`, "/input/objective must be a string"},
		{"job.open", `{"objective":""}`, "/input/objective must not be blank"},
		{"job.open", `{"objective":" \n\u00a0\u3000"}`, "/input/objective must not be blank"},
		{"job.open", `{"objective":"` + chars(8000) + `"}`, ""},
		{"job.open", `{"objective":"` + chars(8001) + `"}`, "/input/objective must have at most 8000 characters"},
		{"job.open", `{"objective":"` + strings.Repeat("क़", 4001) + `"}`,
			"/input/objective must have at most 8000 characters"},
		{"job.open", `{"objective":"a\u0000b"}`,
			"/input/objective must hold no control characters but tabs and line breaks"},
		{"job.open", `{"objective":"a\tb\r\nc"}`, ""},
		{"job.open", `{"objective":"o","template":"poem"}`,
			"/input/template must be one of research, audit, skill:research-report, skill:create-image, skill:create-video, skill:build-website, skill:build-contract-project"},
		{"job.open", `{"objective":"o","template":" research"}`,
			"/input/template must be one of research, audit, skill:research-report, skill:create-image, skill:create-video, skill:build-website, skill:build-contract-project"},
		{"job.open", `{"objective":"o","a/b~c":1}`, "/input/a~1b~0c is not a known member"},
		{"job.open", `{"objective":"o","context":{}}`, "/input/context must be an array"},
		{"job.open", `{"objective":"o","context":[{"name":"n","text":"t"},{"name":"n\nm","text":"","x":1}]}`,
			"/input/context/1/name must be one line without control characters; /input/context/1/text must not be blank; /input/context/1/x is not a known member"},
		{"job.open", `{"objective":"o","context":[` + strings.Repeat(`{"name":"n","text":"t"},`, 20) +
			`{"name":"n","text":"t"}]}`, "/input/context must have at most 20 items"},
		{"job.open", repo("https://github.com/a/b"), ""},
		{"job.open", repo("https://host/a/b/"), ""},
		{"job.open", repo("http://github.com/a/b"), badRepo},
		{"job.open", repo("git@github.com:a/b.git"), badRepo},
		{"job.open", repo("https://user:secret@github.com/a/b"), badRepo},
		{"job.open", repo("https://token@github.com/a/b"), badRepo},
		{"job.open", repo("https://github.com"), badRepo},
		{"job.open", repo("https://github.com/a/b?x=1"), badRepo},
		{"job.open", repo("https://github.com/a/b#x"), badRepo},
		{"job.open", repo("https://github.com/a%0ab"), badRepo},
		{"job.open", repo("https://github.com/a\nb"), badRepo},
		{"job.open", repo(" https://github.com/a/b"), badRepo},
		{"job.open", repo("file:///etc/passwd"), badRepo},
		{"job.open", repo("https://-oProxyCommand/a"), badRepo},
		{"job.open", repo(""), badRepo},
		{"job.open", repo("https://h/" + strings.Repeat("a", 2039)),
			"/input/repoUrl must have at most 2048 characters"},

		{"job.continue", `{"jobId":"nope","input":"i"}`, "/input/jobId must be a UUID"},
		{"job.continue", `{"jobId":"0190b8a0-0000-9000-8000-000000000001","input":"i"}`, "/input/jobId must be a UUID"},
		{"job.continue", fmt.Sprintf(`{"jobId":%q}`, knownID), "/input/input is required"},
		{"job.continue", fmt.Sprintf(`{"jobId":%q,"input":%q}`, knownID, chars(8001)),
			"/input/input must have at most 8000 characters"},

		{"launch.open", `{"objective":"o","kind":"custom_token"}`, "/input/chainId is required"},
		{"launch.open", `{"objective":"o","kind":"rocket","chainId":8453}`,
			"/input/kind must be one of custom_token, univ4_hook, evm_contracts, evm_project"},
		{"launch.open", `{"objective":"o","kind":"custom_token","chainId":"8453"}`,
			"/input/chainId must be an integer"},
		{"launch.open", `{"objective":"o","kind":"custom_token","chainId":8453.5}`,
			"/input/chainId must be an integer"},
		{"launch.open", `{"objective":"o","kind":"custom_token","chainId":0}`, "/input/chainId must be at least 1"},
		{"launch.open", `{"objective":"o","kind":"custom_token","chainId":9007199254740992}`,
			"/input/chainId must be at most 9007199254740991"},
		{"launch.open", `{"objective":"o","kind":"custom_token","chainId":9007199254740993}`, "/input/chainId ..."},
		{"launch.open",
			`{"objective":"o","kind":"custom_token","chainId":8453,"symbol":"$BOX","name":" ","pairWith":""}`,
			"/input/name must not be blank; /input/pairWith must be a pairWith of GET /requests/capabilities; /input/symbol must be 1 to 16 letters or digits"},

		{"oracle.request", `{"question":"q","panelSize":4}`, "/input/panelSize must be at least 5"},
		{"oracle.request", `{"question":"q","panelSize":5}`, ""},
		{"oracle.request", `{"question":"q","panelSize":100}`, ""},
		{"oracle.request", `{"question":"q","panelSize":101}`, "/input/panelSize must be at most 100"},
		{"oracle.request", `{"question":"q","panelSize":5.5}`, "/input/panelSize must be an integer"},
		{"oracle.request", `{"question":"q","panelSize":1e400}`, "/input/panelSize ..."},
		{"oracle.request", `{"question":"q"}`, "/input/panelSize is required"},
		{"oracle.request", `{"question":"q","panelSize":5,"options":["a"]}`,
			"/input/options must have at least 2 items"},
		{"oracle.request", `{"question":"q","panelSize":5,"options":["a","b","a"]}`,
			"/input/options must not repeat an item: those at 0 and 2 are the same"},
		{"oracle.request", `{"question":"q","panelSize":5,"options":["a"," a"]}`,
			"/input/options must not repeat an item: those at 0 and 1 are the same"},
		{"oracle.request", `{"question":"q","panelSize":5,"options":["a",""]}`, "/input/options/1 must not be blank"},
		{"oracle.request", `{"question":"q","panelSize":5,"context":""}`, "/input/context must not be blank"},

		{"workflow.open", `{"objective":"o","shape":"ring","nodes":[` + node("a") + `]}`,
			"/input/shape must be one of chain, dag"},
		{"workflow.open", `{"objective":"o","shape":"dag","nodes":[]}`, "/input/nodes must have at least 1 item"},
		{"workflow.open", nodes(50), ""},
		{"workflow.open", nodes(51), "/input/nodes must have at most 50 items"},
		{"workflow.open", `{"objective":"o","shape":"dag","nodes":[` + node("a b") + `]}`,
			"/input/nodes/0/id must be 1 to 64 letters, digits, dots, underscores or hyphens, the first a letter or a digit"},
		{"workflow.open", `{"objective":"o","shape":"dag","nodes":[{"id":"a","objective":"o","after":["b","b"]}]}`,
			"/input/nodes/0/after must not repeat an item: those at 0 and 1 are the same"},

		{"schedule.create", `{}`,
			"/input/action is required; /input/input is required; /input/intervalMinutes is required; /input/runs is required"},
		{"schedule.create", schedule("workflow.open", job, `"intervalMinutes":30,"runs":1`),
			"/input/action must be one of job.open, oracle.request"},
		{"schedule.create", schedule("job.open", `[]`, `"intervalMinutes":30,"runs":1`),
			"/input/input must be an object"},
		{"schedule.create", schedule("job.open", oracle, `"intervalMinutes":30,"runs":1`),
			"/input/input/objective is required; /input/input/panelSize is not a known member; /input/input/question is not a known member"},
		{"schedule.create",
			schedule("oracle.request", `{"question":" ","panelSize":5}`, `"intervalMinutes":10,"runs":1`),
			"/input/input/question must not be blank"},
		{"schedule.create",
			schedule("oracle.request", `{"question":"q","panelSize":101}`, `"intervalMinutes":10,"runs":1`),
			"/input/input/panelSize must be at most 100"},
		{"schedule.create", schedule("job.open", job, `"intervalMinutes":30,"runs":1,"missed":"forget"`),
			"/input/missed must be one of skip, catch_up"},
		{"workflow.open", `{"objective":"o","shape":"dag","nodes":[{"id":"a","objective":"o","state":"done"}]}`,
			"/input/nodes/0/state is not a known member"},
		{"schedule.create", schedule("job.open", job, `"intervalMinutes":29,"runs":1`),
			"/input/intervalMinutes must be at least 30"},
		{"schedule.create", schedule("oracle.request", oracle, `"intervalMinutes":9,"runs":1`),
			"/input/intervalMinutes must be at least 10"},
		{"schedule.create", schedule("oracle.request", oracle, `"intervalMinutes":525601,"runs":1`),
			"/input/intervalMinutes must be at most 525600"},
		{"schedule.create", schedule("job.open", job, `"intervalMinutes":30,"runs":0`),
			"/input/runs must be at least 1"},
		{"schedule.create", schedule("job.open", job, `"intervalMinutes":30,"runs":1000001`),
			"/input/runs must be at most 1000000"},
		{"schedule.create", schedule("job.open", job, `"intervalMinutes":30,"runs":1,"startAt":"tomorrow"`), badTime},
		{"schedule.create", schedule("job.open", job, `"intervalMinutes":30,"runs":1,"startAt":"2026-02-30T00:00:00Z"`),
			badTime},
		{"schedule.create", schedule("job.open", job, `"intervalMinutes":30,"runs":1,"startAt":"2026-11-20T12:00:00"`),
			badTime},
		{"schedule.create",
			schedule("job.open", job, `"intervalMinutes":30,"runs":1,"startAt":"9999-12-31T23:59:59-01:00"`), badTime},
		{"schedule.create",
			schedule("job.open", job, `"intervalMinutes":30,"runs":1,"startAt":"9999-12-31T23:59:59.999Z"`), ""},
		{"schedule.create", schedule("job.open", job, `"intervalMinutes":30,"runs":1,"startAt":1795176000`),
			"/input/startAt must be a string"},

		{"schedule.topup", fmt.Sprintf(`{"scheduleId":%q,"runs":0}`, knownID), "/input/runs must be at least 1"},
		{"schedule.topup", fmt.Sprintf(`{"scheduleId":%q,"runs":1000001}`, knownID),
			"/input/runs must be at most 1000000"},
		{"schedule.topup", fmt.Sprintf(`{"scheduleId":%q,"runs":"1"}`, knownID), "/input/runs must be an integer"},
	}
	c := catalog(t, nil)
	for _, tt := range tests {
		_, err := prepare(c, tt.action, tt.input)
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s %.80s: %v", tt.action, tt.input, err)
			}
			continue
		}
		p := problem(t, err, boxoffice.InvalidRequest)
		var got []string
		for _, place := range p.Problems {
			got = append(got, place.Path+" "+place.Message)
		}
		want, open := strings.CutSuffix(tt.want, "...") // the words are those of strictjson
		if text := strings.Join(got, "; "); text != want && !(open && len(got) == 1 && strings.HasPrefix(text, want)) {
			t.Errorf("%s %.80s:\n got %s\nwant %s", tt.action, tt.input, text, tt.want)
		}
	}
}

func TestProblemsAreBoundedAndDoNotRepeatTheInput(t *testing.T) {
	long := strings.Repeat("x", 10000)
	inputs := []string{
		`{"objective":"o","` + long + `":1}`,
		`{"objective":"o","` + long + `":{"a":1,"a":2}}`,
		`{"objective":` + strings.Repeat(`{"a":`, 5000) + `1,` + `"a":2` + strings.Repeat(`}`, 5000) + `}`,
		`{"objective":"` + long + `","template":"` + long + `","repoUrl":"` + long + `","context":"` + long + `"}`,
		`{"objective":"o","context":[` + strings.Repeat(`{},`, 4000) + `{}]}`,
		strings.Repeat("[", 20000),
	}
	c := catalog(t, nil)
	for _, input := range inputs {
		_, err := prepare(c, "job.open", input)
		p := problem(t, err, boxoffice.InvalidRequest)
		if len(p.Problems) == 0 || len(p.Problems) > 20 {
			t.Errorf("%.40s: %d problems", input, len(p.Problems))
		}
		if body, _ := json.Marshal(p); len(body) > 4096 {
			t.Errorf("%.40s: the answer has %d bytes", input, len(body))
		}
	}
}

func TestLaunchRefusals(t *testing.T) {
	launch := func(kind string, chain int, rest string) string {
		return fmt.Sprintf(`{"objective":"o","kind":%q,"chainId":%d%s}`, kind, chain, rest)
	}
	tests := []struct{ input, reason, detail string }{
		{launch("custom_token", 1, ""), string(boxoffice.RefusedChainNotListed),
			"a launch cannot deploy on chain 1; the chains are 8453, 84532"},
		{launch("evm_project", 8453, ""), string(boxoffice.RefusedKindNotOffered),
			"chain 8453 does not offer evm_project; it offers custom_token, univ4_hook"},
		{launch("custom_token", 8453, `,"pairWith":"usdc"`), string(boxoffice.RefusedPairingNotOffered),
			"custom_token on chain 8453 cannot be paired with usdc; its pairings are eth"},
		{launch("univ4_hook", 8453, `,"pairWith":"eth"`), string(boxoffice.RefusedPairingNotOffered),
			"univ4_hook on chain 8453 cannot be paired with eth; its pairings are none"},
	}
	c := catalog(t, nil)
	for _, tt := range tests {
		_, err := prepare(c, "launch.open", tt.input)
		if p := problem(t, err, boxoffice.ActionRefused); p.Reason != tt.reason || p.Detail != tt.detail {
			t.Errorf("%s: %v", tt.input, p)
		}
	}
	if got := c.Launches().DefaultChainID; got != 8453 {
		t.Errorf("default chain is %d", got)
	}
	nowhere := catalog(t, func(c *action.Config) { c.Launches = nil })
	_, err := prepare(nowhere, "launch.open", launch("custom_token", 8453, ""))
	if p := problem(t, err, boxoffice.ActionRefused); p.Reason != string(boxoffice.RefusedLaunchesUnavailable) {
		t.Error(p)
	}
}

func TestDecodeRefusesWhatWasNotPrepared(t *testing.T) {
	for name, input := range map[string]string{
		"job.close":     `{}`,
		"job.open":      `{"objective":"o"}`,
		"job.continue":  `{"jobId":"x","input":"i"}`,
		"workflow.open": `{"objective":"o","shape":"dag","nodes":[{"id":"a","objective":"o","template":"research"}]}`,
	} {
		if value, err := action.Decode(name, []byte(input)); err == nil {
			t.Errorf("%s %s decodes to %+v", name, input, value)
		}
	}
}
