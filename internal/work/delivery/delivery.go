// Package delivery keeps the git side of jobs: it creates the workspace in which a job's agents work, commits what they
// wrote to a repository of the job, pushes that to the requester's repository if one is named, and serves it to
// clients of git. It runs the git program and reads no object format itself.
//
// It works for three parties and trusts none of them. The agent may write anything into its workspace. So git does not
// read that folder: this package reads the files (see survey.go), and verifies the agent's commits object by object in
// a repository of its own (see history.go). The requester names an address. hosts.go checks it before git gets it. The
// host at that address may refuse, hang, redirect or send without end. So every command has a time limit, and its
// output is bounded.
package delivery

import (
	"context"
	"errors"
	"fmt"
	"net/mail"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"boxoffice"
	"boxoffice/internal/work/workspace"
)

// Config is what New needs.
type Config struct {
	// Dir holds repos/<jobId>.git, the bare repositories that are served, and the folders of package workspace. It is
	// one file system, and every process that runs jobs uses the same one.
	Dir     string
	BaseURL string // the service's public address, without a slash at its end

	// AllowedHosts are the hosts that a requester's repoUrl may name, see NewHosts. They are reached by https. A
	// loopback host may also be reached by http.
	AllowedHosts []string
	// Credentials are sent to a host on a push and never on a read. If they were sent on a read, a requester could have
	// any repository delivered that the operator can read.
	Credentials map[string]Credential

	// PullRequest is the command that opens a pull request for a branch that was pushed to a requester's repository. It
	// gets REPO_URL, BRANCH, JOB_ID and TITLE in its environment and prints the pull request's URL. If the pull request
	// was opened before, it prints the URL again. If the command is empty, no pull request is opened.
	PullRequest []string
	// Env is added to the environment of git and of PullRequest, which holds little else: a proxy, a CA file, a token
	// of the command. Its values are removed from every failure text.
	Env []string

	Author   string        // of the commits made here: "Name <address>"
	Timeout  time.Duration // of each command
	MaxFiles int           // in what is cloned or committed
	MaxBytes int64         // in what is cloned or committed, and of a fetched pack
	MaxReads int           // clients that are served at once

	Now func() time.Time
}

// A Credential authenticates a push to a host (HTTP Basic).
type Credential struct{ Username, Password string }

// oldestGit is the first version of git that has every setting of guards and environment.
const oldestGit = "2.35.2"

// Git keeps the repositories of jobs. Any number of goroutines and processes may use the same Dir.
type Git struct {
	*workspace.Folders
	config  Config
	program string // git's absolute path
	author  string // in the form of a commit
	hosts   Hosts
	secrets []string // see scrub
	reads   chan struct{}

	credentials map[string]Credential // by hostName
}

// New checks the configuration and the git program that PATH names. It creates the folders below Dir.
func New(config Config) (*Git, error) {
	dir, err := filepath.Abs(config.Dir)
	if config.Dir == "" || err != nil {
		return nil, errors.New("delivery: a folder for repositories is required")
	}
	if config.Timeout <= 0 || config.MaxFiles <= 0 || config.MaxBytes <= 0 || config.MaxReads <= 0 {
		return nil, errors.New("delivery: timeout and limits must be positive")
	}
	base, err := url.Parse(config.BaseURL)
	if err != nil || base.Host == "" || strings.HasSuffix(config.BaseURL, "/") {
		return nil, errors.New("delivery: the base URL must be absolute and have no slash at its end")
	}
	author, err := mail.ParseAddress(config.Author)
	if err != nil || author.Name == "" || strings.ContainsAny(author.Name+author.Address, "<>\n\r\x00") {
		return nil, errors.New(`delivery: the author must be "Name <address>"`)
	}
	hosts, err := NewHosts(config.AllowedHosts)
	if err != nil {
		return nil, err
	}
	g := &Git{
		config: config, author: author.Name + " <" + author.Address + ">",
		hosts: hosts, credentials: make(map[string]Credential), reads: make(chan struct{}, config.MaxReads),
	}
	for host, credential := range config.Credentials {
		if !g.hosts[hostName(host)] {
			return nil, fmt.Errorf("delivery: credentials for %q, which is not an allowed host", host)
		}
		g.credentials[hostName(host)] = credential
		g.secrets = append(g.secrets, credential.Password, credential.basic())
	}
	for _, variable := range config.Env {
		_, value, _ := strings.Cut(variable, "=")
		g.secrets = append(g.secrets, value)
	}
	if g.program, err = exec.LookPath("git"); err != nil {
		return nil, fmt.Errorf("delivery: the git program is needed to deliver work: "+
			"install git %s or newer, or set PATH: %w", oldestGit, err)
	}
	// Another process may be running a command in its temporary folder, for at most the timeout of each command.
	stale := config.Now().Add(-max(24*time.Hour, 10*config.Timeout))
	if g.Folders, err = workspace.Open(dir, stale); err != nil {
		return nil, fmt.Errorf("delivery: %w", err)
	}
	if err := os.MkdirAll(g.repos(), 0o700); err != nil {
		return nil, fmt.Errorf("delivery: %w", err)
	}
	return g, g.checkVersion()
}

var versionPattern = regexp.MustCompile(`^git version (\d+)\.(\d+)(?:\.(\d+))?`)

func (g *Git) checkVersion() error {
	printed, err := g.git(context.Background(), call{}, "version")
	if err != nil {
		return fmt.Errorf("delivery: the git program does not run: %w", err)
	}
	number := func(version string) (n int) {
		for _, part := range versionPattern.FindStringSubmatch("git version " + version)[1:] {
			i, _ := strconv.Atoi(part)
			n = n*1000 + i
		}
		return n
	}
	version := strings.TrimPrefix(printed, "git version ")
	if !versionPattern.MatchString(printed) || number(version) < number(oldestGit) {
		return fmt.Errorf("delivery: git %s or newer is needed, and %s printed %q", oldestGit, g.program, printed)
	}
	return nil
}

func (g *Git) repos() string { return filepath.Join(g.Dir(), "repos") }

// repo returns where the repository of a job is or will be. The id has to be one that boxoffice.ParseUUID returned.
func (g *Git) repo(id boxoffice.UUID) string { return filepath.Join(g.repos(), string(id)+".git") }
