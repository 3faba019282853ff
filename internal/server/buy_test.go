package server_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"sync"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/client"
	"boxoffice/internal/server"
	"boxoffice/internal/test/servertest"
	"boxoffice/x402"
)

var greatest = x402.MaxUint256()

// buy buys and fails the test unless the order is admitted.
func buy(t testing.TB, buyer *client.Client, action, input string) boxoffice.Status {
	t.Helper()
	status, err := buyer.Buy(t.Context(),
		client.Purchase{Input: boxoffice.RawInput{Action: action, JSON: json.RawMessage(input)}, Max: greatest})
	if err != nil {
		t.Fatalf("%s: %v", action, err)
	}
	if status.Status != boxoffice.Admitted {
		t.Fatalf("%s is %s", action, status.Status)
	}
	return status
}

// Every action is quoted, paid once and admitted, and its result can be read.
func TestEveryAction(t *testing.T) {
	w := servertest.Start(t)
	buyer := w.Client(w.NewPayer())
	ctx := t.Context()

	opened := buy(t, buyer, boxoffice.ActionJobOpen,
		`{"objective":"Look around","template":"audit","context":[{"name":"a.md","text":"b"}]}`)
	job, err := buyer.Job(ctx, opened.Admission.Result.ID)
	if err != nil || job.State != boxoffice.JobQueued || job.Template != "audit" || job.Objective != "Look around" {
		t.Errorf("job %+v, %v", job, err)
	}

	continued := buy(t, buyer, boxoffice.ActionJobContinue, fmt.Sprintf(`{"jobId":%q,"input":"Look closer"}`, job.ID))
	if continued.Admission.Result.ID != job.ID {
		t.Errorf("continuing job %s opened %s", job.ID, continued.Admission.Result.ID)
	}
	if payer := continued.Order.Quote.Payer; payer == nil || *payer != opened.Payment.Payer {
		t.Errorf("the quote for continuing is for payer %v, want %s", payer, opened.Payment.Payer)
	}

	launched := buy(t, buyer, boxoffice.ActionLaunchOpen,
		`{"objective":"A token","kind":"custom_token","chainId":31337,"symbol":"TOK"}`)
	launch, err := buyer.Job(ctx, launched.Admission.Result.ID)
	if err != nil || launch.LaunchKind == nil || *launch.LaunchKind != "custom_token" {
		t.Errorf("launch %+v, %v", launch, err)
	}

	asked := buy(t, buyer, boxoffice.ActionOracleRequest,
		`{"question":"Is it so?","panelSize":7,"options":["yes","no"]}`)
	oracle, err := buyer.Oracle(ctx, asked.Admission.Result.ID)
	if err != nil || oracle.PanelSize != 7 || oracle.State != boxoffice.JobQueued {
		t.Errorf("oracle %+v, %v", oracle, err)
	}

	drawn := buy(t, buyer, boxoffice.ActionWorkflowOpen,
		`{"objective":"Two steps","shape":"chain","nodes":[{"id":"a","objective":"one"},{"id":"b","objective":"two"}]}`)
	workflow, err := buyer.Workflow(ctx, drawn.Admission.Result.ID)
	if err != nil || len(workflow.Nodes) != 2 || workflow.Nodes[1].After[0] != "a" {
		t.Errorf("workflow %+v, %v", workflow, err)
	}
	carrier, err := buyer.Job(ctx, workflow.JobID)
	if err != nil || carrier.Template != "shape:chain" {
		t.Errorf("the workflow's job %+v, %v", carrier, err)
	}

	planned := buy(t, buyer, boxoffice.ActionScheduleCreate,
		`{"action":"job.open","input":{"objective":"Look again"},"intervalMinutes":30,"runs":3}`)
	if got, want := planned.Order.Quote.Payment.Amount, x402.NewUint256(3_000_000); got != want ||
		planned.Order.Quote.Runs != 3 {
		t.Errorf("3 runs cost %s for %d runs, want %s", got, planned.Order.Quote.Runs, want)
	}
	buy(t, buyer, boxoffice.ActionScheduleTopUp, fmt.Sprintf(`{"scheduleId":%q,"runs":2}`, planned.Admission.Result.ID))
	schedule, err := buyer.Schedule(ctx, planned.Admission.Result.ID)
	if err != nil || schedule.RunsLeft != 5 || schedule.RunsBought != 5 {
		t.Errorf("schedule %+v, %v", schedule, err)
	}

	// Five single units, three runs and two runs, each paid once.
	if want := big.NewInt(10_000_000); w.Received().Cmp(want) != 0 {
		t.Errorf("the recipient has %s, want %s", w.Received(), want)
	}
	page, err := buyer.Jobs(ctx, client.JobQuery{})
	if err != nil || page.Count != 3 {
		t.Errorf("%d jobs are listed, want 3 (%v)", page.Count, err)
	}
	var paged []boxoffice.UUID
	for job, err := range buyer.AllJobs(ctx, client.JobQuery{Limit: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		paged = append(paged, job.ID)
	}
	if len(paged) != 3 || paged[0] != page.Jobs[0].ID || paged[2] != page.Jobs[2].ID {
		t.Errorf("page by page the jobs are %v", paged)
	}
}

// Reading an order always returns the same. Another token cannot read it.
func TestStatus(t *testing.T) {
	w := servertest.Start(t)
	payer := w.NewPayer()
	buyer := w.Client(payer)
	bought := buy(t, buyer, boxoffice.ActionJobOpen, `{"objective":"Look"}`)
	if err := bought.Validate(); err != nil {
		t.Error(err)
	}
	read, err := buyer.Status(t.Context(), bought.Order.ID)
	if err != nil {
		t.Fatal(err)
	}
	if asJSON(t, read) != asJSON(t, bought) {
		t.Errorf("read %s\nbought %s", asJSON(t, read), asJSON(t, bought))
	}
	stranger := w.Client(payer)
	if _, err := stranger.Status(t.Context(), bought.Order.ID); code(err) != boxoffice.OrderNotFound {
		t.Errorf("a stranger reads the order: %v", err)
	}
	if _, err := stranger.Job(t.Context(), bought.Admission.Result.ID); code(err) != boxoffice.NotFound {
		t.Errorf("a stranger reads the job: %v", err)
	}
}

// Many buyers at the same time pay once each, several of them in one transaction.
func TestManyBuyers(t *testing.T) {
	w := servertest.Start(t, func(o *server.Options) { o.Settlement.Gather = server.Duration(50 * time.Millisecond) })
	awaitReady(t, w) // before that, a payment is answered 503 and sent again after 5 seconds
	const buyers, each = 4, 5
	var group sync.WaitGroup
	transactions := sync.Map{}
	for range buyers {
		buyer := w.Client(w.NewPayer())
		for range each {
			group.Go(func() {
				status, err := buyer.Buy(t.Context(), client.Purchase{
					Input: boxoffice.JobOpen{Objective: "Look"}, Max: servertest.Price,
				})
				if err != nil {
					t.Error(err)
					return
				}
				transactions.Store(*status.Payment.TransactionHash, true)
			})
		}
	}
	group.Wait()
	if want := big.NewInt(buyers * each * 1_000_000); w.Received().Cmp(want) != 0 {
		t.Errorf("the recipient has %s, want %s", w.Received(), want)
	}
	count := 0
	transactions.Range(func(any, any) bool { count++; return true })
	if count >= buyers*each {
		t.Errorf("%d payments took %d transactions: none were shared", buyers*each, count)
	}
}

// A requester that lost every response buys again under the same requestKey and pays once.
func TestBuyAgainUnderTheSameKey(t *testing.T) {
	w := servertest.Start(t)
	vault := client.NewMemoryVault()
	buyer := w.Client(w.NewPayer(), func(c *client.Config) { c.Vault = vault })
	purchase := client.Purchase{
		Input: boxoffice.JobOpen{Objective: "Look"}, Max: servertest.Price, RequestKey: boxoffice.NewUUID(),
	}
	first, err := buyer.Buy(t.Context(), purchase)
	if err != nil {
		t.Fatal(err)
	}
	w.Restart()
	again, err := buyer.Buy(t.Context(), purchase)
	if err != nil {
		t.Fatal(err)
	}
	if asJSON(t, first) != asJSON(t, again) {
		t.Errorf("first %s\nagain %s", asJSON(t, first), asJSON(t, again))
	}
	if got := w.Received(); got.Cmp(servertest.Price.Big()) != 0 {
		t.Errorf("the recipient has %s", got)
	}
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
