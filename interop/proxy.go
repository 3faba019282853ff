package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"boxoffice/internal/server"
)

// proxied puts nginx in front of the demo, and of two services that let each
// address ask three times: one trusts the proxy, the other does not.
func proxied(ctx context.Context, d *demo) (_ []row, err error) {
	folder, err := os.MkdirTemp(d.folder, "nginx-")
	if err != nil {
		return nil, err
	}
	front := make(map[string]string, 3) // the addresses of the proxy, by what is behind them
	conf := bytes.NewBufferString(nginxHead)
	for _, name := range []string{"demo", "trusting", "wary"} {
		if front[name], err = freeAddress(); err != nil {
			return nil, err
		}
	}
	demoURL, err := url.Parse(d.BaseURL)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(conf, nginxServer, front["demo"], demoURL.Host)
	for name, trusted := range map[string][]netip.Prefix{"trusting": {netip.MustParsePrefix("127.0.0.1/32")}, "wary": {}} {
		upstream, end, err := serveBehind(ctx, d, filepath.Join(folder, name), front[name], trusted)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, end()) }()
		fmt.Fprintf(conf, nginxServer, front[name], upstream)
	}
	conf.WriteString("}\n")
	if err := os.WriteFile(filepath.Join(folder, "nginx.conf"), conf.Bytes(), 0o600); err != nil {
		return nil, err
	}
	stop, err := startNginx(ctx, folder, front["demo"])
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()

	if _, err := curlAll(ctx, folder, "nginx", "http://"+front["demo"], false); err != nil {
		return nil, err
	}
	if err := clone(ctx, d, "http://"+front["demo"]); err != nil {
		return nil, fmt.Errorf("through nginx: %w", err)
	}
	if err := forwarded(ctx, folder, front); err != nil {
		return nil, err
	}
	return []row{
		{"nginx in front", "what curl and git did above, but for `Expect`, which nginx answers itself", "the same answers"},
		{"nginx in front", "requests from several addresses, `trusted_proxies` set", "each address has its own rate, whatever it writes into `X-Forwarded-For`; `Origin` is that of `base_url`"},
		{"nginx in front", "the same, `trusted_proxies` empty", "`X-Forwarded-For` is not believed: all share the rate of the proxy's address"},
	}, nil
}

// One process in the foreground, which keeps what it writes in its folder.
const nginxHead = `daemon off;
master_process off;
pid nginx.pid;
error_log stderr crit;
events {}
http {
  access_log off;
  client_body_temp_path bodies;
  proxy_temp_path answers;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
`

// What docs/operations.md says.
const nginxServer = `  server {
    listen %s;
    location / {
      proxy_pass http://%s;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_read_timeout 60s;
      proxy_buffering off;
    }
  }
`

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// asksAtOnce is how often an address may ask the services that count.
const asksAtOnce = 3

// serveBehind starts a service on the demo's chain, whose public address is the
// proxy's, and returns its own.
func serveBehind(ctx context.Context, d *demo, folder, proxy string, trusted []netip.Prefix) (upstream string, end func() error, err error) {
	config, err := server.Load(d.ConfigFile)
	if err != nil {
		return "", nil, err
	}
	key, err := config.SettlementKey()
	if err != nil {
		return "", nil, err
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return "", nil, err
	}
	config.Listen, config.BaseURL = "127.0.0.1:0", "http://"+proxy
	config.Store.Path, config.Work.Dir = filepath.Join(folder, "boxoffice.db"), filepath.Join(folder, "work")
	config.Limits.TrustedProxies = trusted
	config.Limits.PerAddress = server.RateConfig{PerSecond: 1e-3, Burst: asksAtOnce}
	service, err := server.New(ctx, server.Options{Config: config, Key: key, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return "", nil, err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- service.Run(running) }()
	return service.Addr(), func() error {
		stop()
		return errors.Join(<-ended, service.Close())
	}, nil
}

// startNginx starts nginx and returns when it takes connections.
func startNginx(ctx context.Context, folder, address string) (stop func() error, err error) {
	path, err := exec.LookPath("nginx")
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/nginx"); err != nil {
			return nil, fmt.Errorf("the proxy is Debian's package nginx: %w", err)
		}
	}
	c := exec.CommandContext(ctx, path, "-p", folder, "-c", "nginx.conf", "-e", "stderr")
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	var said bytes.Buffer
	c.Stderr = &said
	if err := c.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	stop = func() error {
		return errors.Join(c.Cancel(), <-ended)
	}
	again, late := time.NewTicker(20*time.Millisecond), time.After(10*time.Second)
	defer again.Stop()
	for {
		if conn, err := net.Dial("tcp", address); err == nil {
			return stop, conn.Close()
		}
		select {
		case <-again.C:
		case err := <-ended:
			return nil, fmt.Errorf("nginx ended: %w\n%s", err, &said)
		case <-late:
			return nil, errors.Join(errors.New("nginx takes no connection"), stop())
		}
	}
}

// forwarded asks from several addresses of this machine, all of which are its
// loopback, until one was refused for its rate.
func forwarded(ctx context.Context, folder string, front map[string]string) error {
	for name, trusts := range map[string]bool{"trusting": true, "wary": false} {
		c := &curler{ctx: ctx, folder: folder, base: "http://" + front[name], token: newToken()}
		from := func(address string, args ...string) curled {
			return c.ask("/requests/capabilities", append(args, "--interface", address)...)
		}
		for range asksAtOnce {
			got := from("127.0.0.2")
			c.want(got.status == 200, got)
		}
		got := from("127.0.0.2", "-H", "X-Forwarded-For: 127.0.0.4")
		c.want(got.status == 429 && got.header.Get("Retry-After") != "", got)
		got = from("127.0.0.3")
		c.want((got.status == 200) == trusts, got)
		if trusts { // its pages' origin is the proxy's, and no other
			for origin, status := range map[string]int{c.base: 200, evil[len("Origin: "):]: 403} {
				got = c.ask("/jobs", "--interface", "127.0.0.5", "-H", c.authorization(), "-H", "Origin: "+origin)
				c.want(got.status == status, got)
			}
		}
		if c.err != nil {
			return fmt.Errorf("the service that is %s of its proxy: %w", name, c.err)
		}
	}
	return nil
}
