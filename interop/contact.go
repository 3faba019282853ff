package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"boxoffice"
)

// contact uses the service with common tools that know nothing of x402.
func contact(ctx context.Context, d *demo) (rows []row, err error) {
	for _, part := range []part{curls, browse, clones, proxied} {
		more, err := part(ctx, d)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

var browserFolder = filepath.Join("interop", "browser")

// browse drives a real browser; what it looks at is in visit.mjs.
func browse(ctx context.Context, d *demo) ([]row, error) {
	playwright, err := named(browserFolder, "playwright-core")
	if err != nil {
		return nil, err
	}
	program, err := exec.LookPath("chromium")
	if err != nil {
		return nil, fmt.Errorf("the browser is Debian's package chromium: %w", err)
	}
	visit := exec.CommandContext(ctx, "node", filepath.Join(browserFolder, "visit.mjs"))
	visit.Env = d.env("CHROMIUM=" + program)
	if out, err := visit.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("the browser: %w\n%s", err, out)
	}
	name := "Chromium, " + playwright
	return []row{
		{
			name, "a person opens the root and follows its links",
			"sees what is sold, then both public documents; no script, nothing blocked, no other host",
		},
		{name, "a script of the service's own origin", "gets a quote and reads it with its token"},
		{name, "a script and a form of another origin", "read the two public documents; everything else is refused"},
	}, nil
}

// clones fetches the delivery of a bought job with git.
func clones(ctx context.Context, d *demo) ([]row, error) {
	if err := clone(ctx, d, ""); err != nil {
		return nil, err
	}
	return []row{
		{
			"git", "clone of the delivery of a bought job, with the token as the password",
			"the delivered commit; fsck finds no error",
		},
		{"git", "the same with another token", "not found"},
	}, nil
}

// clone buys a job, waits for its delivery and clones that. With a proxy, it clones from the proxy's address.
func clone(ctx context.Context, d *demo, proxy string) error {
	token := boxoffice.NewToken().Reveal()
	delivered, err := buyDelivery(ctx, d, token)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp(d.folder, "clone-")
	if err != nil {
		return err
	}
	git := func(args ...string) (string, error) {
		c := exec.CommandContext(ctx, "git", args...)
		c.Dir = folder
		c.Env = append(os.Environ(),
			"GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull)
		out, err := c.CombinedOutput()
		return strings.TrimSpace(strings.ReplaceAll(string(out), token, "…")), err
	}
	address := func(token string) string {
		path := strings.TrimPrefix(delivered.RepoURL, d.BaseURL)
		return strings.Replace(cmp.Or(proxy, d.BaseURL), "://", "://x:"+token+"@", 1) + path
	}
	if output, err := git("clone", "--quiet", address(token), "ours"); err != nil {
		return fmt.Errorf("git clone: %w\n%s", err, output)
	}
	if head, err := git("-C", "ours", "rev-parse", "HEAD"); err != nil || head != delivered.Commit {
		return fmt.Errorf("git cloned %s (%v), delivered was %s", head, err, delivered.Commit)
	}
	if output, err := git("-C", "ours", "fsck", "--strict"); err != nil {
		return fmt.Errorf("git fsck: %w\n%s", err, output)
	}
	output, err := git("clone", "--quiet", address(boxoffice.NewToken().Reveal()), "theirs")
	if err == nil || !strings.Contains(output, "not found") {
		return fmt.Errorf("git clone with another token: %v\n%s", err, output)
	}
	return nil
}

// buyDelivery buys a job, waits until it is completed and returns its delivery.
func buyDelivery(ctx context.Context, d *demo, token string) (delivered *boxoffice.Delivery, err error) {
	if err := example("buy", "BOXOFFICE_TOKEN="+token).run(ctx, d); err != nil {
		return nil, err
	}
	err = until(ctx, "the delivery of a job", func() (bool, error) {
		body, err := get(ctx, d.BaseURL+"/jobs", token)
		if err != nil {
			return false, err
		}
		var list boxoffice.JobList
		if err := json.Unmarshal(body, &list); err != nil || len(list.Jobs) != 1 {
			return false, fmt.Errorf("one purchase opened %d jobs (%w)", len(list.Jobs), err)
		}
		job := list.Jobs[0]
		delivered = job.Delivery
		if job.State == boxoffice.JobBlocked {
			return false, errors.New("the job is blocked")
		}
		return job.State == boxoffice.JobCompleted, nil
	})
	if err == nil && (delivered == nil || delivered.RepoURL == "") {
		err = errors.New("the job has no delivery")
	}
	return delivered, err
}
