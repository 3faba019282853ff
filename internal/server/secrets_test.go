package server_test

import (
	"encoding/hex"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"boxoffice"
	"boxoffice/internal/server"
	"boxoffice/internal/test/servertest"

	"github.com/ethereum/go-ethereum/accounts/keystore"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/google/uuid"
)

// The token, the settlement key and signed data reach no log and no response. The token
// and the key reach no file either.
func TestSecretsStaySecret(t *testing.T) {
	w := servertest.Start(t)
	payer := w.NewPayer()
	d := newRequester(t, w)
	var answers strings.Builder
	keep := func(r reply) reply {
		answers.WriteString(http.StatusText(r.Status))
		for name, values := range r.Header {
			answers.WriteString(name + strings.Join(values, ""))
		}
		answers.Write(r.Body)
		return r
	}
	order := d.quote(boxoffice.ActionJobOpen, `{"objective":"Look"}`)
	draft := newDraft(t, w, d.challenge(order), payer)
	header, body := draft.sign()
	keep(d.submit(order, header, strings.Replace(body, "0x", "0y", 1)))
	keep(d.submit(order, header, body))
	keep(d.submit(order, header, body))
	keep(d.submit(order, header[:len(header)-4], body))
	keep(d.send("GET", "/requests/"+string(order.ID), ""))
	keep(d.send("GET", "/requests/"+string(order.ID), "", "Authorization", "Bearer "+d.token.Reveal()+"00"))
	d.until(order, boxoffice.Admitted)
	w.Stop()

	files := readAll(t, filepath.Dir(w.Options.Store.Path))
	permit := hex.EncodeToString(draft.payload.Payload.Signature)
	approval := strings.TrimSuffix(strings.TrimPrefix(body, `{"quoteSignature":"0x`), `"}`)
	for name, secret := range map[string]string{
		"the request token":    d.token.Reveal(),
		"the settlement key":   hex.EncodeToString(crypto.FromECDSA(w.Options.Key)),
		"the payment header":   header[:64],
		"the permit signature": permit,
		"the quote signature":  approval,
	} {
		if strings.Contains(strings.ToLower(w.Log.String()), strings.ToLower(secret)) {
			t.Errorf("%s is in the log", name)
		}
		if strings.Contains(strings.ToLower(answers.String()), strings.ToLower(secret)) {
			t.Errorf("%s is in an answer", name)
		}
	}
	for _, secret := range []string{d.token.Reveal(), string(mustDecode(t, d.token.Reveal())),
		hex.EncodeToString(crypto.FromECDSA(w.Options.Key))} {
		if strings.Contains(files, secret) {
			t.Error("the token or the settlement key is in a file")
		}
	}
	if !strings.Contains(w.Log.String(), "order admitted") || !strings.Contains(files, permit) {
		t.Error("the test reads the wrong log or files")
	}
}

func mustDecode(t *testing.T, text string) []byte {
	t.Helper()
	raw, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func readAll(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all.Write(content)
	}
	return all.String()
}

func TestSettlementKey(t *testing.T) {
	key, err := crypto.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	secret := hex.EncodeToString(crypto.FromECDSA(key))
	config := server.Default()

	t.Setenv("BOXOFFICE_SETTLEMENT_KEY", "0x"+secret)
	if got, err := config.SettlementKey(); err != nil || !got.Equal(key) {
		t.Errorf("from the environment: %v", err)
	}
	t.Setenv("BOXOFFICE_SETTLEMENT_KEY", secret[:40])
	if _, err := config.SettlementKey(); err == nil || strings.Contains(err.Error(), secret[:8]) {
		t.Errorf("a broken key: %v", err)
	}

	file, err := keystore.EncryptKey(&keystore.Key{Id: uuid.New(), Address: crypto.PubkeyToAddress(key.PublicKey),
		PrivateKey: key},
		"pass", keystore.LightScryptN, keystore.LightScryptP)
	if err != nil {
		t.Fatal(err)
	}
	config.Settlement.Keystore = filepath.Join(t.TempDir(), "key.json")
	if err := os.WriteFile(config.Settlement.Keystore, file, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BOXOFFICE_KEYSTORE_PASSWORD", "pass")
	if got, err := config.SettlementKey(); err != nil || !got.Equal(key) {
		t.Errorf("from the keystore: %v", err)
	}
	t.Setenv("BOXOFFICE_KEYSTORE_PASSWORD", "wrong-password")
	if _, err := config.SettlementKey(); err == nil || strings.Contains(err.Error(), "wrong-password") {
		t.Errorf("a wrong password: %v", err)
	}
}
