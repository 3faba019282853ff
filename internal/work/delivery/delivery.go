// Package delivery keeps the git side of a job: the workspace in which its
// agent works, the bare repository that its commits end in, the requester's own
// repository where one is named, and the smart HTTP by which all of it is
// cloned. It drives the git program and reads no object format itself.
//
// Three parties meet here and none is trusted. The agent owns its workspace and
// may write anything there, so git never reads that directory: what is in it is
// read by this package (see snapshot.go), and the commits that the agent made
// are verified object by object in a repository of ours (see history.go). The
// requester names an address, which passes the rules of policy.go before git
// sees it. The host at that address may refuse, hang, redirect or send without
// end, and every command has a time limit and bounded output.
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

// Config is what New needs. Dir and BaseURL are required.
type Config struct {
	// Dir holds everything: repos/<jobId>.git, bare, what is served;
	// workspaces/<jobId>, where an agent works; tmp, what is not finished. It is
	// one file system, shared by every process that runs jobs. A workspace is
	// all of it that an agent should be able to write.
	Dir     string
	BaseURL string // the service's public address, without a slash at its end

	// AllowedHosts are the Hosts that a requester's repoUrl may name. None allows
	// none. Only https reaches them, but for a loopback host that is listed.
	AllowedHosts []string
	// Credentials are sent to a host on a push, and never on a read: else a
	// requester could have any repository delivered that the operator can read.
	Credentials map[string]Credential

	// PullRequest is the command that opens a pull request for a branch that was
	// pushed to a requester's repository. It is given REPO_URL, BRANCH, JOB_ID
	// and TITLE in its environment and prints the pull request's URL, and the
	// same URL again if that was opened before. None: none is opened.
	PullRequest []string
	// Env is added to the environment of git and of PullRequest, which is
	// otherwise bare: a proxy, a CA file, a token of the command. No value of it
	// is shown in a failure.
	Env []string

	Author   string        // of the commits made here, "Name <address>"; default DefaultAuthor
	Timeout  time.Duration // of each command; default DefaultTimeout
	MaxFiles int           // in what is cloned or committed; default DefaultMaxFiles
	MaxBytes int64         // of the same, and of a pack that is fetched; default DefaultMaxBytes
	MaxReads int           // served at once; default DefaultMaxReads

	Now func() time.Time // default time.Now
}

// A Credential is what a push to a host authenticates with (HTTP Basic).
type Credential struct{ Username, Password string }

// The defaults of Config.
const (
	DefaultAuthor   = "Boxoffice <boxoffice@localhost>"
	DefaultTimeout  = 2 * time.Minute
	DefaultMaxFiles = 50_000
	DefaultMaxBytes = 1 << 30
	DefaultMaxReads = 16
)

// oldestGit is the first that has all the guards that environment sets.
const oldestGit = "2.35.2"

// Git keeps the repositories of jobs. Any number of goroutines and processes
// may use the same Dir.
type Git struct {
	config  Config
	program string // git's absolute path
	author  string // as a commit has it
	hosts   Hosts
	secrets []string
	reads   chan struct{}

	credentials map[string]Credential // by hostName
}

// New checks the configuration and the git program that PATH names.
func New(config Config) (*Git, error) {
	dir, err := filepath.Abs(config.Dir)
	if config.Dir == "" || err != nil {
		return nil, errors.New("delivery: a folder for repositories is required")
	}
	config.Dir = dir
	config.Author = orDefault(config.Author, DefaultAuthor)
	config.Timeout = orDefault(config.Timeout, DefaultTimeout)
	config.MaxFiles = orDefault(config.MaxFiles, DefaultMaxFiles)
	config.MaxBytes = orDefault(config.MaxBytes, DefaultMaxBytes)
	config.MaxReads = orDefault(config.MaxReads, DefaultMaxReads)
	if config.Now == nil {
		config.Now = time.Now
	}
	if base, err := url.Parse(config.BaseURL); err != nil || base.Host == "" || strings.HasSuffix(config.BaseURL, "/") {
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
		return nil, fmt.Errorf("delivery: the git program is needed to deliver work: install git %s or newer, or set PATH: %w", oldestGit, err)
	}
	for _, folder := range []string{g.repos(), g.workspaces(), g.unfinished()} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, fmt.Errorf("delivery: %w", err)
		}
	}
	// A workspace has to be what it is called: agents are allowed to write below
	// its name, and not where a link leads.
	if g.config.Dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, fmt.Errorf("delivery: %w", err)
	}
	return g, errors.Join(g.checkVersion(), g.sweep())
}

func orDefault[T comparable](value, standard T) T {
	var zero T
	if value == zero {
		return standard
	}
	return value
}

var versionPattern = regexp.MustCompile(`^git version (\d+)\.(\d+)(?:\.(\d+))?`)

func (g *Git) checkVersion() error {
	said, err := g.git(context.Background(), call{}, "version")
	if err != nil {
		return fmt.Errorf("delivery: the git program does not run: %w", err)
	}
	numbers := func(version string) (n int) {
		for _, part := range versionPattern.FindStringSubmatch("git version " + version)[1:] {
			i, _ := strconv.Atoi(part)
			n = n*1000 + i
		}
		return n
	}
	version := strings.TrimPrefix(said, "git version ")
	if !versionPattern.MatchString(said) || numbers(version) < numbers(oldestGit) {
		return fmt.Errorf("delivery: git %s or newer is needed, and %s says %q", oldestGit, g.program, said)
	}
	return nil
}

func (g *Git) repos() string      { return filepath.Join(g.config.Dir, "repos") }
func (g *Git) workspaces() string { return filepath.Join(g.config.Dir, "workspaces") }
func (g *Git) unfinished() string { return filepath.Join(g.config.Dir, "tmp") }

// The names come from a boxoffice.UUID that was parsed, so they are one path
// element that begins with a hex digit.
func (g *Git) repo(id boxoffice.UUID) string      { return filepath.Join(g.repos(), string(id)+".git") }
func (g *Git) workspace(id boxoffice.UUID) string { return filepath.Join(g.workspaces(), string(id)) }

// build makes a folder that is either whole or absent: it is made elsewhere and
// renamed, so a crash leaves nothing half-made in its place. If another process
// was first, its folder stays.
func (g *Git) build(path string, fill func(folder string) error) error {
	switch info, err := os.Lstat(path); {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		if err := os.Remove(path); err != nil {
			return err
		}
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	folder, err := os.MkdirTemp(g.unfinished(), "")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	if err := fill(folder); err != nil {
		return err
	}
	err = os.Rename(folder, path)
	if info, found := os.Lstat(path); err != nil && found == nil && info.IsDir() {
		return nil
	}
	return err
}

// sweep removes what a process that was killed left unfinished. Other processes
// may be at work, so it leaves what is younger than any command can be.
func (g *Git) sweep() error {
	entries, err := os.ReadDir(g.unfinished())
	for _, entry := range entries {
		info, gone := entry.Info()
		if gone == nil && g.config.Now().Sub(info.ModTime()) > max(24*time.Hour, 10*g.config.Timeout) {
			err = errors.Join(err, workspace.Remove(filepath.Join(g.unfinished(), entry.Name())))
		}
	}
	return err
}
