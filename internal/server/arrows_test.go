package server_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"boxoffice"
)

// module is the path of the module.
var module = reflect.TypeFor[boxoffice.Policy]().PkgPath()

// mayImport is the plan of the packages: which packages of the module each may import. There are no cycles, and a
// package without an entry fails the test.
var mayImport = map[string][]string{
	"internal/strictjson":        {},
	"internal/crash":             {},
	"internal/httpapi/ratelimit": {},
	"contracts":                  {"x402", "contracts/settlement"},
	"contracts/settlement":       {},
	"x402":                       {"internal/strictjson"},
	"":                           {"x402", "internal/strictjson"},
	"client":                     {"", "x402"},
	"api":                        {""},
	"internal/action":            {"", "x402", "internal/strictjson"},
	"internal/payment":           {"", "x402", "internal/crash"},
	"internal/payment/evm":       {"", "x402", "internal/payment", "contracts/settlement"},
	"internal/payment/remote":    {"", "x402", "internal/payment", "internal/crash"},
	"internal/facilitator":       {"", "x402", "internal/payment"},
	"internal/work":              {""},
	"internal/work/workspace":    {""},
	"internal/work/agent":        {"", "internal/strictjson", "internal/work", "internal/work/workspace"},
	"internal/work/delivery":     {"", "internal/work", "internal/work/workspace"},
	"internal/work/engine":       {"", "internal/work", "internal/work/agent", "internal/work/workspace"},
	"examples":                   {},
	"examples/agent-go":          {},
	"internal/action/judge":      {"", "internal/action", "internal/strictjson"},
	"internal/order": {
		"", "x402", "internal/strictjson", "internal/action", "internal/payment", "internal/work", "internal/crash",
	},
	"internal/httpapi": {
		"", "x402", "internal/strictjson", "internal/httpapi/ratelimit", "internal/order", "internal/payment",
		"internal/facilitator", "internal/work",
	},
	"internal/store/sqlite": {
		"", "x402", "internal/strictjson", "internal/action", "internal/order", "internal/payment",
		"internal/payment/remote", "internal/facilitator", "internal/work", "internal/crash",
	},
}

// The packages in wiring connect the parts, and those in tests are only for tests and the demo. They may import every
// package. TestNoDevChainInProduction checks that the production binary links none of the latter.
var (
	wiring = []string{"internal/server", "cmd/boxoffice"}
	tests  = []string{"docs", "internal/test/", "internal/store/storetest", "api/apitest", "cmd/demo"}
)

func forTests(name string) bool {
	return slices.ContainsFunc(tests, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

func TestImportsFollowThePlan(t *testing.T) {
	for _, p := range packages(t, "./...") {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if slices.Contains(wiring, name) || forTests(name) {
			continue
		}
		allowed, planned := mayImport[name]
		if !planned {
			t.Errorf("package %q is not planned: add it to mayImport with what it may import", name)
			continue
		}
		for _, imported := range p.Imports {
			if imported != module && !strings.HasPrefix(imported, module+"/") {
				continue
			}
			imported = strings.TrimPrefix(strings.TrimPrefix(imported, module), "/")
			if !slices.Contains(allowed, imported) {
				t.Errorf("%q imports %q", name, imported)
			}
		}
	}
}

// The production binary links no development chain, none of its public keys and contracts, and nothing else for tests.
func TestNoDevChainInProduction(t *testing.T) {
	linked := packages(t, "-deps", "../../cmd/boxoffice")
	if len(linked) < 100 {
		t.Fatalf("boxoffice links only %d packages, so the list is not complete", len(linked))
	}
	for _, p := range linked {
		name, ours := strings.CutPrefix(p.ImportPath, module+"/")
		switch {
		case ours && (name == "contracts" || forTests(name)),
			p.ImportPath == "github.com/ethereum/go-ethereum/eth", // an Ethereum node
			p.ImportPath == "github.com/ethereum/go-ethereum/node":
			t.Errorf("boxoffice links %s", p.ImportPath)
		}
	}
}

type listed struct {
	ImportPath string
	Imports    []string
}

func packages(t *testing.T, args ...string) (list []listed) {
	t.Helper()
	command := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports"}, args...)...)
	if args[0] == "./..." {
		command.Dir = "../.."
	}
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(out))
	for {
		var p listed
		if err := decoder.Decode(&p); err == io.EOF {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}
