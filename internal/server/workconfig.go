package server

import (
	"errors"
	"fmt"
	"time"
)

// WorkConfig says how admitted work is run.
type WorkConfig struct {
	Dir         string   `toml:"dir" comment:"The folder of workspaces and delivered repositories, shared by all processes that run work.\nA relative path starts at this file's folder."`
	Concurrency int      `toml:"concurrency" comment:"Nodes that this process runs at once. 0: it runs no work and no schedules; boxoffice worker does."`
	Attempts    int      `toml:"attempts" comment:"Failed runs of a node after which it is given up and its job is blocked."`
	Backoff     Duration `toml:"backoff" comment:"Until a failed node's first retry; doubles with each."`
	Lease       Duration `toml:"lease" comment:"How long a process that fell silent keeps its nodes; at least 10s, for its agents have 5s to end."`
	Poll        Duration `toml:"poll" comment:"How often the queue is asked for work."`
	Scheduling  Duration `toml:"scheduling" comment:"How often schedules are looked at."`
}

// AgentConfig is one agent: a program of this machine or an address.
type AgentConfig struct {
	Command   []string `toml:"command,omitempty" comment:"The program and its arguments: a task on standard input, an answer on standard output.\nexamples/README.md has the contract."`
	Env       []string `toml:"env,omitempty" comment:"Names of environment variables that the program is given."`
	Writable  []string `toml:"writable,omitempty" comment:"Further folders in which it may write."`
	MaxMemory int64    `toml:"max_memory,omitempty" comment:"Bytes of memory that its processes may hold together. 0: no limit."`
	Confined  bool     `toml:"confined,omitempty" comment:"Whether it must not run where the kernel cannot confine it to its workspace."`

	URL       string `toml:"url,omitempty" comment:"In place of a command: where tasks are posted, as Standard Webhooks."`
	SecretEnv string `toml:"secret_env,omitempty" comment:"The environment variable with the secret (whsec_…) of url."`
	Callback  bool   `toml:"callback,omitempty" comment:"Whether the agent at url may answer later."`

	Timeout   Duration `toml:"timeout,omitempty" comment:"From the task to the answer. Default 30m."`
	MaxOutput int64    `toml:"max_output,omitempty" comment:"Bytes of the answer. Default 1 MiB."`
}

// DeliveryConfig says how work is delivered.
type DeliveryConfig struct {
	AllowedHosts []string                    `toml:"allowed_hosts" comment:"Hosts that a requester's repoUrl may name. Empty: none."`
	Credentials  map[string]CredentialConfig `toml:"credentials" comment:"What is sent to a host on a push and never on a read, by host: [delivery.credentials.\"git.example\"]\nwith username and password_env, the environment variable that has the password or token."`
	PullRequest  []string                    `toml:"pull_request" comment:"The command that opens a pull request: it is given REPO_URL, BRANCH, JOB_ID and TITLE in its environment\nand prints the pull request's URL. Empty: none is opened."`
	Env          []string                    `toml:"env" comment:"Names of environment variables that git and pull_request are given."`
	Author       string                      `toml:"author" comment:"Of the commits made here: Name <address>."`
	Timeout      Duration                    `toml:"timeout" comment:"Of git, and of pull_request, each time."`
}

// CredentialConfig names what a push to a host authenticates with.
type CredentialConfig struct {
	Username    string `toml:"username"`
	PasswordEnv string `toml:"password_env" comment:"The environment variable with the password or token."`
}

// The defaults of keys that an agent's table may leave out.
const (
	agentTimeout   = 30 * time.Minute
	agentMaxOutput = 1 << 20 // bytes
)

// Limits that are not configured.
const (
	agentGrace  = 5 * time.Second // from SIGTERM to SIGKILL
	agentMaxLog = 64 << 10        // bytes of an agent's log that are kept

	deliveryMaxFiles = 50_000  // in what is cloned or committed
	deliveryMaxBytes = 1 << 30 // in what is cloned or committed
	deliveryMaxReads = 16      // clients of git that are served at once
)

// leastLease is longer than the agents of a process that was killed may take to
// end: when the lease is over another begins in their workspace.
const leastLease = Duration(10 * time.Second)

func (c *Config) checkWork() error {
	switch {
	case c.Work.Concurrency < 0:
		return errors.New("work.concurrency must not be negative")
	case c.Work.Attempts < 1:
		return errors.New("work.attempts must be at least 1")
	case c.Work.Dir == "":
		return errors.New("work.dir must not be empty")
	}
	for key, value := range map[string]Duration{
		"work.backoff": c.Work.Backoff, "work.lease": c.Work.Lease, "work.poll": c.Work.Poll,
		"work.scheduling": c.Work.Scheduling, "delivery.timeout": c.Delivery.Timeout,
	} {
		if value <= 0 {
			return fmt.Errorf("%s must be above 0", key)
		}
	}
	if c.Work.Lease < leastLease {
		return fmt.Errorf("work.lease must be at least %s", time.Duration(leastLease))
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
