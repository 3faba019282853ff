package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"boxoffice/contracts"
	"boxoffice/internal/server"
	"boxoffice/internal/test/devchain"
	"boxoffice/internal/test/servertest"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"boxoffice": main})
}

// TestScripts runs the scripts of testdata as somebody at a shell would, against
// a service on a chain of its own. Each script has its own home, so its own
// request token, and a wallet with tokens and the Permit2 allowance.
func TestScripts(t *testing.T) {
	play(t, "testdata", servertest.Start(t))
}

// agent is one that an operator could write in a shell.
const agent = `case "$(tee report.md)" in
*'"panel"'*) echo '{"outcome":"done","summary":"I think so","choice":"yes"}' ;;
*'For ever'*) case "$(cat report.md)" in *'"inputs"'*) ;; *) sleep 1000 ;; esac; echo '{"outcome":"done","summary":"at last"}' ;;
*'Break it'*) mkfifo .gitignore; echo '{"outcome":"done","summary":"broken"}' ;;
*'Ask me'*) echo '{"outcome":"blocked","reason":"what?"}' ;;
*) echo '{"outcome":"done","summary":"it is written"}' ;;
esac
`

// TestWorkScripts runs the scripts about work that is done.
func TestWorkScripts(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("LEFT OUT: delivering work needs git")
	}
	script := filepath.Join(t.TempDir(), "agent.sh")
	if err := os.WriteFile(script, []byte(agent), 0o600); err != nil {
		t.Fatal(err)
	}
	play(t, filepath.Join("testdata", "work"), servertest.Start(t, func(o *server.Options) {
		o.Work.Concurrency = 4
		o.Agents = map[string]server.AgentConfig{"default": {Command: []string{"sh", script}}}
	}))
}

func play(t *testing.T, dir string, world *servertest.World) {
	testscript.Run(t, testscript.Params{
		Dir: dir,
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			for name, value := range map[string]string{
				"HOME": home, "XDG_CONFIG_HOME": filepath.Join(home, ".config"), "TZ": "UTC",
				"BOXOFFICE_URL": world.Options.BaseURL, "BOXOFFICE_RPC_URL": world.Chain.URL(),
				"BOXOFFICE_PRIVATE_KEY":  hex.EncodeToString(crypto.FromECDSA(world.NewPayer())),
				"HOST":                   strings.ReplaceAll(strings.TrimPrefix(world.Options.BaseURL, "http://"), ":", "_"),
				"BOXOFFICE_OPERATOR_URL": "http://" + world.OperatorAddr(),
				"PAY_TO":                 strings.ToLower(devchain.PayTo().Hex()),
				"TOKEN":                  strings.ToLower(world.Chain.Token().Hex()),
			} {
				env.Setenv(name, value)
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":      exits,
			"eventually": eventually,
			"pick":       pick,
			"mode":       mode,
			"keystore":   writeKeystore,
			// paid checks how often the wallet of the environment paid the price: paid TIMES.
			"paid": func(ts *testscript.TestScript, _ bool, args []string) {
				key, err := crypto.HexToECDSA(ts.Getenv("BOXOFFICE_PRIVATE_KEY"))
				ts.Check(err)
				left, err := world.Chain.TokenBalance(t.Context(), crypto.PubkeyToAddress(key.PublicKey))
				ts.Check(err)
				paid := new(big.Int).Sub(big.NewInt(1e12), left) // NewPayer funds so much
				if got := paid.Div(paid, servertest.Price.Big()).String(); len(args) != 1 || got != args[0] {
					ts.Fatalf("the wallet paid %s times, want %v", got, args)
				}
			},
			// newcontract puts a contract wallet that can pay, and its owner's key, into the environment.
			"newcontract": func(ts *testscript.TestScript, _ bool, _ []string) {
				key := world.NewKey()
				ts.Setenv("BOXOFFICE_CONTRACT_WALLET", world.NewContract(contracts.Wallet(), key).Hex())
				ts.Setenv("BOXOFFICE_PRIVATE_KEY", hex.EncodeToString(crypto.FromECDSA(key)))
			},
			// newwallet puts a wallet with native coin and tokens and without an allowance
			// into the environment.
			"newwallet": func(ts *testscript.TestScript, _ bool, _ []string) {
				key := world.NewKey()
				ts.Check(
					world.Chain.Fund(
						t.Context(),
						crypto.PubkeyToAddress(key.PublicKey),
						devchain.Ether(1),
						devchain.Ether(1),
					),
				)
				ts.Setenv("BOXOFFICE_PRIVATE_KEY", hex.EncodeToString(crypto.FromECDSA(key)))
			},
		},
	})
}

// exits runs a command that has to exit with a code: exits 3 boxoffice buy …
func exits(ts *testscript.TestScript, negated bool, args []string) {
	if negated || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ARGUMENT…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		failure, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = failure.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// eventually runs a command until its output has a line: eventually REGEXP COMMAND ARGUMENT…
func eventually(ts *testscript.TestScript, negated bool, args []string) {
	if negated || len(args) < 2 {
		ts.Fatalf("usage: eventually REGEXP COMMAND ARGUMENT…")
	}
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	deadline := time.After(time.Minute)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		ts.Check(ts.Exec(args[1], args[2:]...))
		if want.MatchString(ts.ReadFile("stdout")) {
			return
		}
		select {
		case <-again.C:
		case <-deadline:
			ts.Fatalf("no line is %s", args[0])
		}
	}
}

// pick puts a member of the JSON on stdout into the environment, and compares it
// if a value is given: pick ORDER order.id, or pick - status admitted.
func pick(ts *testscript.TestScript, negated bool, args []string) {
	if negated || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: pick NAME PATH [VALUE]")
	}
	var value any
	if err := json.Unmarshal([]byte(ts.ReadFile("stdout")), &value); err != nil {
		ts.Fatalf("stdout is not one JSON document: %v", err)
	}
	for step := range strings.SplitSeq(args[1], ".") {
		switch node := value.(type) {
		case map[string]any:
			value = node[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(node) {
				ts.Fatalf("there is no item %s in %s", step, args[1])
			}
			value = node[i]
		default:
			ts.Fatalf("there is no %s in %s", step, args[1])
		}
	}
	text := fmt.Sprint(value)
	ts.Setenv(args[0], text)
	if len(args) == 3 && text != args[2] {
		ts.Fatalf("%s is %s, want %s", args[1], text, args[2])
	}
}

// mode checks the permissions of a file: mode 600 FILE.
func mode(ts *testscript.TestScript, negated bool, args []string) {
	if negated || len(args) != 2 {
		ts.Fatalf("usage: mode OCTAL FILE")
	}
	info, err := os.Stat(ts.MkAbs(args[1]))
	ts.Check(err)
	if got := strconv.FormatUint(uint64(info.Mode().Perm()), 8); got != args[0] {
		ts.Fatalf("%s has mode %s, want %s", args[1], got, args[0])
	}
}
