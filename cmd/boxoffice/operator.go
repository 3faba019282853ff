package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"boxoffice"
	"boxoffice/internal/work"
)

// operator is where the operator's HTTP of a running service is.
type operator struct {
	Operator string `default:"http://127.0.0.1:9402" env:"BOXOFFICE_OPERATOR_URL" placeholder:"URL" help:"Address of the operator's HTTP: operator_listen of the configuration (${default})."`
}

// ask sends a request and reads the answer into v.
func (o operator) ask(ctx context.Context, method, path string, v any) error {
	request, err := http.NewRequestWithContext(ctx, method, o.Operator+path, nil)
	if err != nil {
		return usage("--operator: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		problem := new(boxoffice.Problem)
		if err := json.NewDecoder(response.Body).Decode(problem); err != nil {
			return fmt.Errorf("the operator's address answered %s", response.Status)
		}
		return problem
	}
	if err := json.NewDecoder(response.Body).Decode(v); err != nil {
		return fmt.Errorf("the operator's address answered what this program does not know: %w", err)
	}
	return nil
}

// cancelCmd ends work that an operator does not want to be done.
type cancelCmd struct {
	operator
	ID string `arg:"" help:"A job, a workflow, an oracle or a schedule."`
}

// Run cancels it.
func (cmd *cancelCmd) Run(ctx context.Context, s *Settings, std *streams) error {
	id, err := orderID(cmd.ID)
	if err != nil {
		return err
	}
	var cancelled work.Cancelled
	if err := cmd.ask(ctx, http.MethodPost, "/work/"+string(id)+"/cancel", &cancelled); err != nil {
		return err
	}
	if s.JSON {
		return json.NewEncoder(std.out).Encode(cancelled)
	}
	_, err = fmt.Fprintf(std.out, "%s %s is %s\n", printable(cancelled.Kind), printable(string(cancelled.ID)), printable(cancelled.State))
	return err
}
