package devchain_test

import (
	"bufio"
	"context"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"testing"

	"boxoffice/contracts"
	"boxoffice/internal/test/devchain"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
)

// chainToKill is the environment variable with the data directory of the process that the test kills.
const chainToKill = "BOXOFFICE_DEVCHAIN_TO_KILL"

func TestMain(m *testing.M) {
	if dir := os.Getenv(chainToKill); dir != "" {
		fmt.Fprintln(os.Stderr, mineUntilKilled(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// mineUntilKilled mines blocks with one transfer of one token each, and prints the number and hash of each.
func mineUntilKilled(dir string) error {
	ctx := context.Background()
	c, err := devchain.Start(ctx, devchain.Config{DataDir: dir, Funded: devchain.DevAccounts()})
	if err != nil {
		return err
	}
	for {
		if err := payOneToken(ctx, c); err != nil {
			return err
		}
		head := c.Head()
		if _, err := fmt.Println(head.Number, head.Hash()); err != nil {
			return err
		}
	}
}

func payOneToken(ctx context.Context, c *devchain.Chain) error {
	data, err := contracts.TestToken().ABI.Pack("transfer", devchain.PayTo(), devchain.Ether(1))
	if err != nil {
		return err
	}
	_, err = c.Transact(ctx, devchain.PayerKey(), c.Token(), nil, data)
	return err
}

func TestKilledChainLosesNoBlock(t *testing.T) {
	dir := t.TempDir()
	for round := range 3 {
		number, hash := killAfterBlocks(t, dir, 5+3*round)

		c, err := devchain.Start(t.Context(), devchain.Config{DataDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		// The process may have been killed between mining a block and printing it.
		head := c.Head().Number.Uint64()
		if head < number || head > number+1 {
			t.Fatalf("round %d: the newest block is %d, %d was printed", round, head, number)
		}
		printed, err := c.Client().HeaderByNumber(t.Context(), new(big.Int).SetUint64(number))
		if err != nil {
			t.Fatal(err)
		}
		if printed.Hash() != hash {
			t.Errorf("round %d: block %d is %s, %s was printed", round, number, printed.Hash(), hash)
		}
		wantTokens(t, c, devchain.PayTo(), devchain.Ether(int64(head)))
		wantTransferInEveryBlock(t, c)

		if err := payOneToken(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if got := c.Head().Number.Uint64(); got != head+1 {
			t.Errorf("round %d: the block after %d is %d", round, head, got)
		}
		wantTokens(t, c, devchain.PayTo(), devchain.Ether(int64(head)+1))
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := devchain.Start(t.Context(), devchain.Config{DataDir: dir, ChainID: 5}); err == nil {
		t.Error("started a chain with another chain id than its genesis block has")
	}
}

// wantTransferInEveryBlock checks the receipts and the state of all blocks, as an archive node has them.
func wantTransferInEveryBlock(t *testing.T, c *devchain.Chain) {
	t.Helper()
	balance, err := contracts.TestToken().ABI.Pack("balanceOf", devchain.PayTo())
	if err != nil {
		t.Fatal(err)
	}
	token := c.Token()
	for n := int64(1); n <= c.Head().Number.Int64(); n++ {
		block, err := c.Client().BlockByNumber(t.Context(), big.NewInt(n))
		if err != nil {
			t.Fatal(err)
		}
		receipt, err := c.Client().TransactionReceipt(t.Context(), block.Transactions()[0].Hash())
		if err != nil {
			t.Fatal(err)
		}
		if receipt.BlockHash != block.Hash() || len(receipt.Logs) != 1 {
			t.Errorf("block %d: receipt in block %s with %d logs", n, receipt.BlockHash, len(receipt.Logs))
		}
		answer, err := c.Client().CallContract(t.Context(), ethereum.CallMsg{To: &token, Data: balance}, big.NewInt(n))
		if err != nil {
			t.Fatal(err)
		}
		if got := new(big.Int).SetBytes(answer); got.Cmp(devchain.Ether(n)) != 0 {
			t.Errorf("block %d: the balance is %s", n, got)
		}
	}
}

// killAfterBlocks runs the chain in another process, kills it after n blocks, and returns the last block it printed.
func killAfterBlocks(t *testing.T, dir string, n int) (number uint64, hash common.Hash) {
	t.Helper()
	process := exec.CommandContext(t.Context(), os.Args[0])
	process.Env = append(os.Environ(), chainToKill+"="+dir)
	process.Stderr = os.Stderr
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	printed := 0
	for lines := bufio.NewScanner(out); lines.Scan(); printed++ {
		var text string
		if _, err := fmt.Sscan(lines.Text(), &number, &text); err != nil {
			t.Errorf("line %q: %v", lines.Text(), err)
		}
		hash = common.HexToHash(text)
		if printed == n {
			if err := process.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := process.Wait(); err == nil {
		t.Error("the process was not killed")
	}
	if printed < n {
		t.Fatalf("the process ended after %d blocks", printed)
	}
	return number, hash
}
