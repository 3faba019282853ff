package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"

	"boxoffice"
	"boxoffice/internal/server"
)

// proxied puts nginx in front of the demo and of two services that allow each address three requests. One of them
// trusts the proxy, the other does not.
func proxied(ctx context.Context, d *demo) (_ []row, err error) {
	folder, err := os.MkdirTemp(d.folder, "nginx-")
	if err != nil {
		return nil, err
	}
	front := make(map[string]string, 3) // the addresses of the proxy by the service behind
	conf := bytes.NewBufferString(nginxHead)
	addresses, err := freeAddresses(3)
	if err != nil {
		return nil, err
	}
	front["demo"], front["trusting"], front["distrusting"] = addresses[0], addresses[1], addresses[2]
	demoURL, err := url.Parse(d.BaseURL)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(conf, nginxServer, front["demo"], demoURL.Host)
	for name, trusted := range map[string][]netip.Prefix{
		"trusting": {netip.MustParsePrefix("127.0.0.1/32")}, "distrusting": {},
	} {
		key, _, err := newWallet(ctx, d)
		if err != nil {
			return nil, err
		}
		secret := []string{"BOXOFFICE_SETTLEMENT_KEY=" + key}
		behind, err := d.serveBeside(ctx, name, "serve", secret, func(config *server.Config) {
			config.BaseURL = "http://" + front[name]
			config.Limits.TrustedProxies = trusted
			config.Limits.PerAddress = server.RateConfig{PerSecond: 1e-3, Burst: requestBurst}
		})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, behind.end()) }()
		fmt.Fprintf(conf, nginxServer, front[name], behind.config.Listen)
	}
	conf.WriteString("}\n")
	if err := os.WriteFile(filepath.Join(folder, "nginx.conf"), conf.Bytes(), 0o600); err != nil {
		return nil, err
	}
	nginx, err := startNginx(ctx, folder, front["demo"])
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, nginx.end()) }()

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
		{
			"nginx in front", "the requests of curl and git above, without `Expect`, which nginx answers itself",
			"the same results",
		},
		{
			"nginx in front", "requests from several addresses, with `trusted_proxies`",
			"each address has its own rate limit, whatever it sends as `X-Forwarded-For`; the origin is that of `base_url`",
		},
		{
			"nginx in front", "requests from several addresses, without `trusted_proxies`",
			"`X-Forwarded-For` is ignored: all requests count for the proxy's address",
		},
	}, nil
}

// nginx runs as one process in the foreground and writes only into its folder.
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

// nginxServer is the configuration that docs/operations.md recommends.
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

// requestBurst is how many requests an address may send to the services with a rate limit.
const requestBurst = 3

// startNginx starts nginx and waits until it accepts connections.
func startNginx(ctx context.Context, folder, address string) (*process, error) {
	path, err := exec.LookPath("nginx")
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/nginx"); err != nil {
			return nil, fmt.Errorf("the proxy is Debian's package nginx: %w", err)
		}
	}
	nginx, err := start(exec.CommandContext(ctx, path, "-p", folder, "-c", "nginx.conf", "-e", "stderr"))
	if err != nil {
		return nil, err
	}
	err = nginx.until(ctx, "nginx to accept connections", func() (bool, error) {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return false, nil
		}
		return true, conn.Close()
	})
	if err != nil {
		return nil, errors.Join(err, nginx.end())
	}
	return nginx, nil
}

// forwarded sends requests from several loopback addresses and checks which of them share a rate limit.
func forwarded(ctx context.Context, folder string, front map[string]string) error {
	for name, trusts := range map[string]bool{"trusting": true, "distrusting": false} {
		token := boxoffice.NewToken().Reveal()
		c := &curler{ctx: ctx, folder: folder, base: "http://" + front[name], token: token}
		from := func(address string, args ...string) curled {
			return c.ask("/requests/capabilities", append(args, "--interface", address)...)
		}
		for range requestBurst {
			got := from("127.0.0.2")
			c.want(got.status == 200, got)
		}
		got := from("127.0.0.2", "-H", "X-Forwarded-For: 127.0.0.4")
		c.want(got.status == 429 && got.header.Get("Retry-After") != "", got)
		got = from("127.0.0.3")
		c.want((got.status == 200) == trusts, got)
		if trusts { // pages of the proxy's origin may use the service, no others
			for origin, status := range map[string]int{c.base: 200, evil[len("Origin: "):]: 403} {
				got = c.ask("/jobs", "--interface", "127.0.0.5", "-H", c.authorization(), "-H", "Origin: "+origin)
				c.want(got.status == status, got)
			}
		}
		if c.err != nil {
			return fmt.Errorf("the %s service: %w", name, c.err)
		}
	}
	return nil
}
