package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"boxoffice/internal/httpapi"
	"boxoffice/internal/order"
	"boxoffice/internal/store/sqlite"
	"boxoffice/internal/work/agent"
	"boxoffice/internal/work/delivery"
	"boxoffice/internal/work/engine"
)

// works runs and delivers admitted work.
type works struct {
	engine    *engine.Engine       // nil: this process runs no work
	git       httpapi.Repositories // nil: nothing is delivered
	callbacks http.Handler         // nil: no agent sends its result later
}

func (w *works) run(ctx context.Context) error {
	if w.engine == nil {
		return nil
	}
	return w.engine.Run(ctx)
}

func openWork(o Options, store *sqlite.Store) (*works, error) {
	w := new(works)
	runners, err := w.agents(o, sqlite.CallbackStore{Store: store, Poll: time.Duration(o.Work.Poll)})
	if err != nil {
		return nil, err
	}
	var deliverer engine.Deliverer
	if len(runners) > 0 {
		git, err := openGit(o)
		if err != nil {
			return nil, err
		}
		deliverer, w.git = git, git
	}
	if o.Work.Concurrency == 0 {
		return w, nil
	}
	w.engine = engine.New(engine.Config{
		Store: store, Deliverer: deliverer, Open: order.Open, Agents: runners,
		Concurrency: o.Work.Concurrency, MaxFailures: o.Work.MaxFailures, Backoff: time.Duration(o.Work.Backoff),
		Lease: time.Duration(o.Work.Lease), Heartbeat: heartbeat, Poll: time.Duration(o.Work.Poll),
		Scheduling: time.Duration(o.Work.Scheduling), Now: o.Now, Log: o.Log,
	})
	return w, nil
}

func openGit(o Options) (*delivery.Git, error) {
	config := delivery.Config{
		Dir: o.Work.Dir, BaseURL: o.BaseURL, AllowedHosts: o.Delivery.AllowedHosts, PullRequest: o.Delivery.PullRequest,
		Author: o.Delivery.Author, Timeout: time.Duration(o.Delivery.Timeout), Now: o.Now,
		MaxFiles: deliveryMaxFiles, MaxBytes: deliveryMaxBytes, MaxReads: deliveryMaxReads,
		Credentials: map[string]delivery.Credential{},
	}
	for host, credential := range o.Delivery.Credentials {
		password := os.Getenv(credential.PasswordEnv)
		if password == "" {
			return nil, fmt.Errorf("delivery.credentials.%s: %s is not set in the environment",
				host, credential.PasswordEnv)
		}
		config.Credentials[host] = delivery.Credential{Username: credential.Username, Password: password}
	}
	for _, name := range o.Delivery.Env {
		if value, ok := os.LookupEnv(name); ok {
			config.Env = append(config.Env, name+"="+value)
		}
	}
	return delivery.New(config)
}

// agents returns the runner of each agent, and sets the handler of results that agents
// send later.
func (w *works) agents(o Options, callbacks agent.CallbackStore) (map[string]agent.Runner, error) {
	runners := map[string]agent.Runner{}
	var later []*agent.HTTP
	for template, c := range o.Agents {
		timeout := time.Duration(cmp.Or(c.Timeout, DefaultAgent().Timeout))
		maxOutput := cmp.Or(c.MaxOutput, DefaultAgent().MaxOutput)
		if c.URL == "" {
			command, err := agent.NewCommand(agent.CommandConfig{
				Argv: c.Command, Timeout: timeout, Grace: agentGrace, MaxOutput: maxOutput, MaxLog: agentMaxLog,
				MaxMemory: c.MaxMemory, Env: c.Env, Writable: c.Writable, Hidden: o.secretFiles(),
				Confined: c.Confined, Log: o.Log,
			})
			if err != nil {
				return nil, fmt.Errorf("agents.%s: %w", template, err)
			}
			runners[template] = command
			continue
		}
		secret, err := agent.ParseSecret(os.Getenv(c.SecretEnv))
		if err != nil {
			return nil, fmt.Errorf("agents.%s: %s in the environment: %w", template, c.SecretEnv, err)
		}
		config := agent.HTTPConfig{URL: c.URL, Secret: secret, Timeout: timeout, MaxOutput: maxOutput, Now: o.Now}
		if c.Callback {
			config.Callback, config.CallbackStore = o.BaseURL+"/callbacks", callbacks
		}
		runner, err := agent.NewHTTP(config)
		if err != nil {
			return nil, fmt.Errorf("agents.%s: %w", template, err)
		}
		if runners[template] = runner; c.Callback {
			later = append(later, runner)
		}
	}
	if len(later) > 0 {
		w.callbacks = agent.NewCallbacks(later...)
	}
	return runners, nil
}

// secretFiles are the files that agents must not read: the database with the payments,
// the settlement key, and the work of other requesters. An agent can read its own
// workspace.
func (o Options) secretFiles() []string {
	files := []string{o.Work.Dir}
	for _, suffix := range []string{"", "-wal", "-shm", ".lock"} {
		files = append(files, o.Store.Path+suffix)
	}
	if o.Settlement.Keystore != "" {
		files = append(files, o.Settlement.Keystore)
	}
	for i, file := range files {
		if absolute, err := filepath.Abs(file); err == nil {
			files[i] = absolute
		}
	}
	return files
}

// Worker runs work in a process of its own, besides the service.
type Worker struct {
	store *sqlite.Store
	work  *works
	log   *slog.Logger
}

// NewWorker opens the database of a configuration. It needs neither the chain nor the
// settlement key.
func NewWorker(ctx context.Context, o Options) (*Worker, error) {
	if len(o.Agents) == 0 {
		return nil, errors.New("a worker needs at least one agent: add a table [agents.TEMPLATE]")
	}
	if o.Work.Concurrency == 0 {
		return nil, errors.New("work.concurrency must be above 0 for a worker")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	store, err := sqlite.Open(ctx, sqlite.Config{Path: o.Store.Path})
	if err != nil {
		return nil, err
	}
	w, err := openWork(o, store)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &Worker{store, w, o.Log}, nil
}

// Run runs work until ctx ends.
func (w *Worker) Run(ctx context.Context) error {
	w.log.InfoContext(ctx, "worker started")
	return w.work.run(ctx)
}

// Close closes what NewWorker opened. Call it after Run has returned.
func (w *Worker) Close() error { return w.store.Close() }
