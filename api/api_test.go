package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"boxoffice"
	"boxoffice/api"
	"boxoffice/api/apitest"
	"boxoffice/internal/action"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"
)

func document(t *testing.T) []byte {
	t.Helper()
	catalog, err := action.New(action.Config{Payment: boxoffice.Payment{
		Network: "eip155:31337", Asset: common.Address{1}, PayTo: common.Address{2},
		Amount: x402.NewUint256(5), Decimals: 18,
	}, Originals: struct{ action.Originals }{}})
	if err != nil {
		t.Fatal(err)
	}
	document, err := api.Document(api.Options{
		BaseURL: "https://tickets.example", ServiceName: "Tickets <&> more",
		Policies: catalog.Policies(), Limits: catalog.Limits(), Schemas: action.Schemas(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return document
}

func TestDocumentIsValid(t *testing.T) {
	apitest.New(t, document(t))
}

// The document says what the service sells, and declares what docs/protocol.md §2.1,
// §4.4, §5.4 and §9 demand of it.
func TestDocumentSaysWhatIsSold(t *testing.T) {
	var got struct {
		OpenAPI string
		Info    struct{ Title, Version string }
		Servers []struct{ URL string }
		Actions []map[string]json.RawMessage `json:"x-paid-actions"`
		Paths   struct {
			Submit struct {
				Post struct {
					Payment map[string]any `json:"x-payment"`
				}
			} `json:"/requests/{id}/submit"`
		}
		Components struct {
			SecuritySchemes map[string]struct{ Type, Scheme string }
			Schemas         struct {
				JobOpenInput json.RawMessage
				QuoteRequest struct{ OneOf []json.RawMessage }
				Error        struct {
					Properties struct {
						Error struct{ Enum []boxoffice.Code }
					}
				}
			}
		}
	}
	if err := json.Unmarshal(document(t), &got); err != nil {
		t.Fatal(err)
	}
	if got.OpenAPI != "3.1.0" || got.Info.Version != "1.0.0" || got.Info.Title != "Tickets <&> more" ||
		got.Servers[0].URL != "https://tickets.example" {
		t.Errorf("head: %q %+v %+v", got.OpenAPI, got.Info, got.Servers)
	}
	var names []string
	for _, action := range got.Actions {
		var name string
		json.Unmarshal(action["action"], &name)
		names = append(names, name)
		for _, member := range []string{"version", "payment", "quoteTtlSeconds", "limits", "input"} {
			if action[member] == nil {
				t.Errorf("%s has no %s", name, member)
			}
		}
		perRun := strings.HasPrefix(name, "schedule.")
		if (string(action["pricedPer"]) == `"run"`) != perRun || (action["note"] != nil) != perRun {
			t.Errorf("%s: pricedPer %s, note %s", name, action["pricedPer"], action["note"])
		}
	}
	if diff := cmp.Diff(boxoffice.Actions(), names); diff != "" {
		t.Error(diff)
	}
	if len(got.Components.Schemas.QuoteRequest.OneOf) != len(boxoffice.Actions()) {
		t.Error("QuoteRequest does not have the input of every action")
	}
	if diff := cmp.Diff(string(action.Schemas()["job.open"]), string(got.Components.Schemas.JobOpenInput)); diff != "" {
		t.Error(diff)
	}
	for _, name := range []string{"bearer", "apiKey"} {
		if scheme := got.Components.SecuritySchemes[name]; scheme.Type != "http" || scheme.Scheme != "bearer" {
			t.Errorf("security scheme %s: %+v", name, scheme)
		}
	}
	for name, want := range map[string]any{"protocol": "x402", "version": 2.0, "scheme": "exact",
		"assetTransferMethod": "permit2"} {
		if payment := got.Paths.Submit.Post.Payment; payment[name] != want {
			t.Errorf("x-payment.%s is %v", name, payment[name])
		}
	}
	var codes []boxoffice.Code
	for _, info := range boxoffice.Codes() {
		codes = append(codes, info.Code)
	}
	if diff := cmp.Diff(codes, got.Components.Schemas.Error.Properties.Error.Enum); diff != "" {
		t.Error(diff)
	}
}

func TestDocumentNeedsASchemaForEveryAction(t *testing.T) {
	_, err := api.Document(api.Options{Policies: []boxoffice.Policy{{Action: "job.open"}}})
	if err == nil || !strings.Contains(err.Error(), "job.open") {
		t.Errorf("error %v does not name the action", err)
	}
	if _, err := api.Document(api.Options{}); err == nil {
		t.Error("a document without actions")
	}
}
