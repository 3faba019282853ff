package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"boxoffice/internal/test/testlog"
)

// A process is a program that runs until it is stopped.
type process struct {
	command        *exec.Cmd
	stdin          io.Closer     // the program ends when it is closed, also because this process died
	stdout, stderr testlog.Log   // can be read while the process runs
	over           chan struct{} // closed when the process has ended
	ended          error         // how it ended
}

func start(command *exec.Cmd) (*process, error) {
	p := &process{command: command, over: make(chan struct{})}
	command.Stdout, command.Stderr = &p.stdout, &p.stderr
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 15 * time.Second
	stdin, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.stdin = stdin
	if err := command.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.ended = command.Wait()
		close(p.over)
	}()
	return p, nil
}

// startNode starts a Node.js program of a folder, which prints its address when it is ready.
func startNode(ctx context.Context, folder, program string, env []string) (p *process, url string, err error) {
	command := exec.CommandContext(ctx, "node", program)
	command.Dir, command.Env = folder, env
	if p, err = start(command); err != nil {
		return nil, "", err
	}
	if url, err = p.line(ctx, "http://"); err != nil {
		return nil, "", errors.Join(err, p.end())
	}
	return p, url, nil
}

// line waits until the process prints a line with a prefix, and returns the line.
func (p *process) line(ctx context.Context, prefix string) (line string, err error) {
	err = p.until(ctx, fmt.Sprintf("%s to print %q", p.command.Path, prefix), func() (found bool, _ error) {
		for printed := range strings.Lines(p.stdout.String()) {
			if strings.HasPrefix(printed, prefix) && strings.HasSuffix(printed, "\n") {
				line, found = strings.TrimSpace(printed), true
				break
			}
		}
		return found, nil
	})
	return line, err
}

// until is the function until, with an error when the process ends.
func (p *process) until(ctx context.Context, what string, ask func() (bool, error)) error {
	err := until(ctx, what, func() (bool, error) {
		select {
		case <-p.over:
			return false, fmt.Errorf("waiting for %s: the process ended", what)
		default:
			return ask()
		}
	})
	if err != nil {
		return fmt.Errorf("%w\nstandard error:\n%s", err, &p.stderr)
	}
	return nil
}

// end interrupts the process and waits for its end. If it fails, the error contains its standard error.
func (p *process) end() error {
	_ = p.stdin.Close() // closed already if it has ended
	err := p.command.Process.Signal(os.Interrupt)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-p.over
	if p.ended != nil && p.command.ProcessState.Exited() {
		err = errors.Join(err, p.ended)
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, &p.stderr)
	}
	return nil
}

// until calls ask until it returns true or an error, for at most a minute.
func until(ctx context.Context, what string, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		if yes, err := ask(); yes || err != nil {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
	}
}

// freeAddresses returns loopback addresses with free ports.
func freeAddresses(n int) (addresses []string, err error) {
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses, nil
}
