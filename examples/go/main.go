// Command buy buys one job from a Boxoffice service and waits for its end.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"boxoffice"
	"boxoffice/client"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
)

func main() {
	ctx := context.Background()
	key, err := crypto.HexToECDSA(strings.TrimPrefix(os.Getenv("BOXOFFICE_PRIVATE_KEY"), "0x"))
	check("BOXOFFICE_PRIVATE_KEY", err)
	chain, err := ethclient.Dial(os.Getenv("BOXOFFICE_RPC_URL")) // optional: checks funds before signing
	check("BOXOFFICE_RPC_URL", err)
	vault, err := client.OpenFileVault(os.Getenv("BOXOFFICE_VAULT")) // keep it: it holds what was signed
	check("BOXOFFICE_VAULT", err)
	buyer, err := client.New(client.Config{
		BaseURL: os.Getenv("BOXOFFICE_URL"),
		Token:   boxoffice.NewToken(), // keep it: only requests with it see the order and the job
		Signer:  client.KeySigner(key),
		Chain:   chain,
		Vault:   vault,
	})
	check("BOXOFFICE_URL", err)

	most, err := boxoffice.ParseUnits("1", 18) // one token, of 18 decimals
	check("price", err)
	status, err := buyer.Buy(ctx, client.Purchase{
		Input:      boxoffice.JobOpen{Objective: "Name three uses of a lighthouse"},
		Max:        most,
		RequestKey: boxoffice.NewUUID(), // keep it: buying again with it pays once
	})
	if outcome := client.OutcomeOf(err); outcome != client.Succeeded {
		log.Fatalf("%v: %v", outcome, err)
	}
	fmt.Println("paid in transaction", status.Payment.TransactionHash)

	for job, err := range buyer.WatchJob(ctx, status.Admission.Result.ID) {
		check("job", err)
		fmt.Println("job", job.ID, "is", job.State)
	}
}

func check(what string, err error) {
	if err != nil {
		log.Fatalf("%s: %v", what, err)
	}
}
