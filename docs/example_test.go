package docs_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"

	"boxoffice"
	"boxoffice/contracts"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/common/math"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/signer/core/apitypes"
	"go.yaml.in/yaml/v3"
)

// exampleKey is the first key of the test mnemonic that development chains use.
const exampleKey = "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"

// A purchase is the worked example: the purchase in the examples of the OpenAPI
// document, with the signatures that pay for it.
type purchase struct {
	t         *testing.T
	token     boxoffice.Token
	request   json.RawMessage
	quoted    boxoffice.QuoteResponse
	challenge boxoffice.Challenge
	pending   boxoffice.Status
	admitted  boxoffice.Status

	payment  *x402.Payment
	header   string
	permit   typed
	approval typed
}

// typed is EIP-712 data with its hashes, computed by go-ethereum's general
// implementation, and the signature over its digest.
type typed struct {
	domain, message, digest, signature []byte
}

func newPurchase(t *testing.T, document *yaml.Node) *purchase {
	t.Helper()
	p := &purchase{t: t}
	for i := range p.token {
		p.token[i] = byte(i)
	}
	example := func(name string, into any) {
		p.read(at(document, "components", "examples", name, "value"), into)
	}
	example("NewOrder", &p.quoted)
	example("Offer", &p.challenge)
	example("Pending", &p.pending)
	example("Admitted", &p.admitted)
	asked := at(document, "paths", "/requests/quote", "post", "requestBody", "content", "application/json", "examples",
		"research", "value")
	p.read(asked, &p.request)
	for what, err := range map[string]error{
		"NewOrder": p.quoted.Order.Verify(), "Offer": p.challenge.Verify(),
		"Pending": p.pending.Validate(), "Admitted": p.admitted.Validate(),
	} {
		if err != nil {
			t.Fatalf("example %s: %v", what, err)
		}
	}
	if scope := p.token.Requester().ScopeHash(exampleURL); scope != p.challenge.RequesterScopeHash {
		t.Fatalf("example Offer: requesterScopeHash is %s, want %s", p.challenge.RequesterScopeHash, scope)
	}
	p.sign()
	return p
}

// read decodes an example of the document.
func (p *purchase) read(node *yaml.Node, into any) {
	p.t.Helper()
	var tree any
	if node == nil {
		p.t.Fatal("the document lacks an example")
	}
	if err := node.Decode(&tree); err != nil {
		p.t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(marshal(tree)), into); err != nil {
		p.t.Fatal(err)
	}
}

// sign builds the payload and signs it, and then the approval over its hash.
func (p *purchase) sign() {
	p.t.Helper()
	key, err := crypto.HexToECDSA(exampleKey)
	if err != nil {
		p.t.Fatal(err)
	}
	accepted := p.challenge.Accepts[0]
	chainID, err := x402.ChainID(accepted.Network)
	if err != nil {
		p.t.Fatal(err)
	}
	authorization := x402.Authorization{
		From:      crypto.PubkeyToAddress(key.PublicKey),
		Permitted: x402.Permitted{Token: accepted.Asset, Amount: accepted.Amount},
		Spender:   x402.ExactProxy,
		Nonce:     x402.NewUint256(0x5eed<<8 | 3),
		Deadline:  x402.NewUint256(uint64(p.challenge.Quote.IssuedAt + 20 + accepted.MaxTimeoutSeconds)),
		Witness:   x402.Witness{To: accepted.PayTo},
	}
	digest := authorization.Digest(chainID)
	p.permit = p.hash(permitData(authorization, chainID), digest)
	if p.permit.signature, err = x402.Sign(digest, key); err != nil {
		p.t.Fatal(err)
	}
	p.header, err = x402.EncodeHeader(x402.Payload{
		X402Version: x402.Version, Resource: &p.challenge.Resource, Accepted: accepted,
		Payload: x402.Permit2Payload{Signature: p.permit.signature, Authorization: authorization},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	if p.payment, err = x402.ParsePayment(p.header); err != nil {
		p.t.Fatal(err)
	}
	approval, err := p.challenge.Approve(exampleService, p.payment.Hash)
	if err != nil {
		p.t.Fatal(err)
	}
	digest = approval.Digest()
	p.approval = p.hash(approvalData(approval), digest)
	if p.approval.signature, err = x402.Sign(digest, key); err != nil {
		p.t.Fatal(err)
	}
}

// hash computes the hashes of typed data, and checks that its digest is the one
// that the service computes.
func (p *purchase) hash(data apitypes.TypedData, digest [32]byte) typed {
	p.t.Helper()
	domain, err := data.HashStruct("EIP712Domain", data.Domain.Map())
	if err != nil {
		p.t.Fatal(err)
	}
	message, err := data.HashStruct(data.PrimaryType, data.Message)
	if err != nil {
		p.t.Fatal(err)
	}
	if want := crypto.Keccak256Hash([]byte{0x19, 0x01}, domain, message); want != digest {
		p.t.Fatalf("the digest of %s is %x, want %x", data.PrimaryType, digest, want)
	}
	return typed{domain: domain, message: message, digest: digest[:]}
}

func hexOrDecimal(n uint64) *math.HexOrDecimal256 { return math.NewHexOrDecimal256(int64(n)) }

func permitData(a x402.Authorization, chainID uint64) apitypes.TypedData {
	return apitypes.TypedData{
		Types: apitypes.Types{
			"EIP712Domain": {{Name: "name", Type: "string"}, {Name: "chainId", Type: "uint256"},
				{Name: "verifyingContract", Type: "address"}},
			"PermitWitnessTransferFrom": {{Name: "permitted", Type: "TokenPermissions"},
				{Name: "spender", Type: "address"}, {Name: "nonce", Type: "uint256"},
				{Name: "deadline", Type: "uint256"}, {Name: "witness", Type: "Witness"}},
			"TokenPermissions": {{Name: "token", Type: "address"}, {Name: "amount", Type: "uint256"}},
			"Witness":          {{Name: "to", Type: "address"}, {Name: "validAfter", Type: "uint256"}},
		},
		PrimaryType: "PermitWitnessTransferFrom",
		Domain: apitypes.TypedDataDomain{
			Name: "Permit2", ChainId: hexOrDecimal(chainID), VerifyingContract: x402.Permit2.Hex(),
		},
		Message: apitypes.TypedDataMessage{
			"permitted": map[string]any{"token": a.Permitted.Token.Hex(), "amount": a.Permitted.Amount.String()},
			"spender":   a.Spender.Hex(),
			"nonce":     a.Nonce.String(),
			"deadline":  a.Deadline.String(),
			"witness":   map[string]any{"to": a.Witness.To.Hex(), "validAfter": a.Witness.ValidAfter.String()},
		},
	}
}

func approvalData(a boxoffice.QuoteApproval) apitypes.TypedData {
	template := boxoffice.NewQuoteApprovalTemplate(a.ServiceName, a.ChainID)
	types := apitypes.Types{}
	for name, members := range template.Types {
		for _, member := range members {
			types[name] = append(types[name], apitypes.Type(member))
		}
	}
	return apitypes.TypedData{
		Types:       types,
		PrimaryType: template.PrimaryType,
		Domain: apitypes.TypedDataDomain{
			Name: template.Domain.Name, Version: template.Domain.Version, ChainId: hexOrDecimal(a.ChainID),
		},
		Message: apitypes.TypedDataMessage{
			"resource": a.Resource, "requesterScopeHash": "0x" + a.RequesterScopeHash.String(),
			"quoteId": string(a.QuoteID), "quoteHash": "0x" + a.QuoteHash.String(),
			"paymentHash": "0x" + a.PaymentHash.String(), "action": a.Action, "asset": a.Asset.Hex(),
			"amount": a.Amount.String(), "payTo": a.PayTo.Hex(), "expiresAt": fmt.Sprint(a.ExpiresAt),
		},
	}
}

// examples returns what renders each part of the example.
func (p *purchase) examples() map[string]func() string {
	return map[string]func() string{
		"token": p.showToken, "quote": p.showQuote, "challenge": p.showChallenge, "permit": p.showPermit,
		"approval": p.showApproval, "submit": p.showSubmit, "chain": p.showChain,
	}
}

func (p *purchase) showToken() string {
	return lines(
		"request token", p.token.Reveal(),
		"requester", p.token.Requester().String(),
		"base URL", exampleURL,
		"requesterScopeHash", p.challenge.RequesterScopeHash.String(),
	)
}

func (p *purchase) showQuote() string {
	quote := p.canonical(p.quoted.Order.Quote)
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(quote), &members); err != nil {
		p.t.Fatal(err)
	}
	delete(members, "quoteHash")
	return code("http", "POST /requests/quote HTTP/1.1\nHost: tickets.example\nAuthorization: Bearer "+p.token.Reveal()+
		"\n\n"+string(p.request)) +
		"\nThe answer is 201. Members of JSON objects can stand in any order; here they are sorted.\n\n" +
		code("json", p.canonical(p.quoted)) +
		"\nThe prepared input as canonical JSON (it is `inputJson`), and the quote without `quoteHash` as canonical JSON:\n\n" +
		code("json", p.quoted.Order.InputJSON) + "\n" + code("json", p.canonical(members)) + "\n" +
		lines("inputHash", p.quoted.Order.Quote.InputHash.String(), "quoteHash", p.quoted.Order.Quote.QuoteHash.String())
}

func (p *purchase) showChallenge() string {
	header, err := x402.EncodeHeader(x402.PaymentRequired{
		X402Version: x402.Version, Error: x402.HeaderSignature + " header is required",
		Resource: &p.challenge.Resource, Accepts: p.challenge.Accepts,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return code("http", "POST "+p.path()+" HTTP/1.1\nHost: tickets.example\nAuthorization: Bearer "+p.token.Reveal()) +
		"\nThe answer is 402, with this header and this body:\n\n" +
		code("http", "PAYMENT-REQUIRED: "+header) + "\n" + code("json", p.canonical(p.challenge))
}

func (p *purchase) showPermit() string {
	authorization := p.payment.Payload.Payload.Authorization
	return "The key is the first one of the mnemonic that development chains use. Everybody knows it.\n\n" +
		lines("private key", "0x"+exampleKey, "payer", strings.ToLower(authorization.From.Hex())) +
		"\n" + code("json", p.canonical(authorization)) + "\n" + p.permit.lines()
}

func (p *purchase) showApproval() string {
	return "The payload as canonical JSON, and its hash:\n\n" + code("json", string(p.payment.Raw)) + "\n" +
		lines("paymentHash", hex.EncodeToString(p.payment.Hash[:])) +
		"\nThe quote approval over that hash:\n\n" + p.approval.lines()
}

func (p *purchase) showSubmit() string {
	paid := *p.admitted.Payment
	response, err := x402.EncodeHeader(x402.Settlement{
		Success: true, Payer: hexutil.Encode(paid.Payer[:]), Transaction: paid.TransactionHash.Hex(),
		Network: paid.Network, Amount: paid.Amount.String(),
	})
	if err != nil {
		p.t.Fatal(err)
	}
	document, err := base64.StdEncoding.DecodeString(response)
	if err != nil {
		p.t.Fatal(err)
	}
	return "The header is the base64 of the payload. Any order of its members gives the same `paymentHash`.\n\n" +
		code("http", "POST "+p.path()+" HTTP/1.1\nHost: tickets.example\nAuthorization: Bearer "+p.token.Reveal()+
			"\nPAYMENT-SIGNATURE: "+p.header+"\n\n"+
			marshal(boxoffice.Submission{QuoteSignature: boxoffice.Signature(p.approval.signature)})) +
		"\nThe answer is 202 while the payment is pending:\n\n" + code("json", p.canonical(p.pending)) +
		"\nand 200 once the action is admitted, with this header, whose document follows, and this body:\n\n" +
		code("http", "PAYMENT-RESPONSE: "+response) + "\n" + code("json", string(document)) + "\n" +
		code("json", p.canonical(p.admitted))
}

func (p *purchase) showChain() string {
	a := p.payment.Payload.Payload.Authorization
	calldata, err := contracts.SettleCall(a, p.payment.Payload.Payload.Signature)
	if err != nil {
		p.t.Fatal(err)
	}
	nonce := a.Nonce.Bytes32()
	transfer := crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)"))
	return "The call of the proxy that settles the payment:\n\n" +
		lines("to", strings.ToLower(x402.ExactProxy.Hex()), "data", hexutil.Encode(calldata)) +
		"\nThe permit's nonce is spent when this bit of `nonceBitmap(owner, word)` of Permit2 is set:\n\n" +
		lines("word", hexutil.EncodeBig(new(big.Int).SetBytes(nonce[:31])), "bit", fmt.Sprint(nonce[31])) +
		"\nThe log that proves the payment, from the token's address:\n\n" +
		lines("topic 0", transfer.Hex(), "topic 1", common.BytesToHash(a.From[:]).Hex(),
			"topic 2", common.BytesToHash(a.Witness.To[:]).Hex(),
			"data", hexutil.Encode(common.BigToHash(a.Permitted.Amount.Big()).Bytes()))
}

func (p *purchase) path() string {
	return strings.TrimPrefix(p.challenge.ResourceURL, exampleURL)
}

func (p *purchase) canonical(v any) string {
	p.t.Helper()
	document, err := boxoffice.Canonical([]byte(marshal(v)))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(document)
}

func (d typed) lines() string {
	return lines("domain separator", hexutil.Encode(d.domain), "struct hash", hexutil.Encode(d.message),
		"digest", hexutil.Encode(d.digest), "signature", hexutil.Encode(d.signature))
}

// lines writes names and values in two columns.
func lines(pairs ...string) string {
	width := 0
	for i := 0; i < len(pairs); i += 2 {
		width = max(width, len(pairs[i]))
	}
	var text strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&text, "%-*s  %s\n", width, pairs[i], pairs[i+1])
	}
	return code("", text.String())
}

func marshal(v any) string {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(err)
	}
	return strings.TrimSpace(text.String())
}

// TestExampleSignatures holds the example to what the page says: one wallet
// signed both, over what was sent.
func TestExampleSignatures(t *testing.T) {
	p := newPurchase(t, contract(t))
	for name, data := range map[string]typed{"permit": p.permit, "approval": p.approval} {
		signer, err := x402.Recover([32]byte(data.digest), data.signature)
		if err != nil || signer != p.pending.Payment.Payer {
			t.Errorf("the %s was signed by %s, %v, and the example says %s", name, signer, err, p.pending.Payment.Payer)
		}
	}
	page := read(t, "protocol.md")
	for _, name := range slices.Sorted(maps.Keys(p.examples())) {
		if !strings.Contains(page, blockStart+"example "+name+" -->") {
			t.Errorf("docs/protocol.md does not show the example %q", name)
		}
	}
}
