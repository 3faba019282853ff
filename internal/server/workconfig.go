package server

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// WorkConfig says how admitted work is run.
type WorkConfig struct {
	Dir         string   `toml:"dir" comment:"The folder of workspaces and delivered repositories, shared by all processes that run work.\nA relative path is relative to the folder of this file."`
	Concurrency int      `toml:"concurrency" comment:"How many nodes this process runs at the same time. 0: none, and no schedules; 'boxoffice worker' runs them."`
	MaxFailures int      `toml:"max_failures" comment:"How many runs of a node may fail before the node fails and its job is blocked."`
	Backoff     Duration `toml:"backoff" comment:"The pause before the first retry of a failed node. It doubles with each further retry."`
	Lease       Duration `toml:"lease" comment:"Other processes take over the nodes of a process that has not renewed its leases for so long. At least 10s, since its\nagents may take 5s to end."`
	Poll        Duration `toml:"poll" comment:"How often the database is asked for work."`
	Scheduling  Duration `toml:"scheduling" comment:"How often due schedules are looked for."`
}

// AgentConfig is one agent: a program on this machine or an address.
type AgentConfig struct {
	Command   []string `toml:"command,omitempty" comment:"The program and its arguments. It reads a task from standard input and writes its result to standard output;\nexamples/README.md describes both."`
	Env       []string `toml:"env,omitempty" comment:"The names of environment variables that the program gets."`
	Writable  []string `toml:"writable,omitempty" comment:"Folders besides its workspace in which the program may write."`
	MaxMemory int64    `toml:"max_memory,omitempty" comment:"Bytes of memory that the processes of the program may use together. 0: no limit."`
	Confined  bool     `toml:"confined,omitempty" comment:"true: do not run the program where the kernel cannot confine it to its workspace."`

	URL       string `toml:"url,omitempty" comment:"Instead of a command: the address to which tasks are posted, as Standard Webhooks."`
	SecretEnv string `toml:"secret_env,omitempty" comment:"The environment variable with the secret (whsec_…) that signs the tasks."`
	Callback  bool   `toml:"callback,omitempty" comment:"Whether the agent may send its result later, to /callbacks."`

	Timeout   Duration `toml:"timeout,omitempty" comment:"How long the agent may take, from the task to the result. Default: as shown."`
	MaxOutput int64    `toml:"max_output,omitempty" comment:"The most bytes of a result. Default: as shown."`
}

// DeliveryConfig says how work is delivered.
type DeliveryConfig struct {
	AllowedHosts []string                    `toml:"allowed_hosts" comment:"The hosts that the repoUrl of a requester may name. Empty: none."`
	Credentials  map[string]CredentialConfig `toml:"credentials" comment:"The credentials of pushes, by host: [delivery.credentials.\"git.example\"] with username and password_env, the\nenvironment variable with the password or token. They are never sent to read a repository."`
	PullRequest  []string                    `toml:"pull_request" comment:"The command that opens a pull request. It gets REPO_URL, BRANCH, JOB_ID and TITLE in its environment and prints the\nURL of the pull request. Empty: no pull request is opened."`
	Env          []string                    `toml:"env" comment:"The names of environment variables that git and pull_request get."`
	Author       string                      `toml:"author" comment:"The author of the commits that are made here: Name <address>."`
	Timeout      Duration                    `toml:"timeout" comment:"The timeout of each run of git and of pull_request."`
}

// CredentialConfig names the credentials of pushes to a host.
type CredentialConfig struct {
	Username    string `toml:"username"`
	PasswordEnv string `toml:"password_env" comment:"The environment variable with the password or token."`
}

// Limits that are not configured.
const (
	agentGrace  = 5 * time.Second // from SIGTERM to SIGKILL
	agentMaxLog = 64 << 10        // bytes of an agent's log that are kept

	deliveryMaxFiles = 50_000  // in what is cloned or committed
	deliveryMaxBytes = 1 << 30 // in what is cloned or committed
	deliveryMaxReads = 16      // clients of git that are served at once
)

// minLease is longer than the agents of a killed process may take to end. When the
// lease has expired, other agents start in the same workspaces.
const minLease = Duration(10 * time.Second)

// heartbeat is how often a process renews its runs, and how soon it sees that one
// was cancelled.
const heartbeat = 2 * time.Second

func (c *Config) checkWork() error {
	switch {
	case c.Work.Concurrency < 0:
		return errors.New("work.concurrency must not be negative")
	case c.Work.MaxFailures < 1:
		return errors.New("work.max_failures must be at least 1")
	case c.Work.Dir == "":
		return errors.New("work.dir must not be empty")
	}
	if err := cmp.Or(
		positive("work.backoff", c.Work.Backoff), positive("work.poll", c.Work.Poll),
		positive("work.scheduling", c.Work.Scheduling), positive("delivery.timeout", c.Delivery.Timeout),
	); err != nil {
		return err
	}
	if c.Work.Lease < minLease {
		return fmt.Errorf("work.lease must be at least %s", time.Duration(minLease))
	}
	for template, agent := range c.Agents {
		if (len(agent.Command) == 0) == (agent.URL == "") {
			return fmt.Errorf("agents.%s needs either a command or a url", template)
		}
		if agent.URL != "" && agent.SecretEnv == "" {
			return fmt.Errorf("agents.%s.secret_env is required with a url", template)
		}
	}
	return nil
}
