package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"boxoffice"
	"boxoffice/internal/httpapi"
	"boxoffice/internal/server"
	"boxoffice/internal/work"

	"github.com/alecthomas/kong"
)

// operator is the flag of commands that call the operator's HTTP of a running service.
type operator struct {
	Operator string `default:"${operator_url}" env:"BOXOFFICE_OPERATOR_URL" placeholder:"URL" help:"The address in operator_listen of the service's configuration (${default})."`
}

// operatorVars are the defaults that the flags of operators share with the service.
func operatorVars() kong.Vars {
	return kong.Vars{
		"operator_url": "http://" + server.Default().OperatorListen,
		"payments":     strconv.Itoa(httpapi.DefaultPayments), "max_payments": strconv.Itoa(httpapi.MaxPayments),
	}
}

// call sends a request and reads the body of the response into v.
func (o operator) call(ctx context.Context, method, path string, v any) error {
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
			return fmt.Errorf("%s answered %s, and no error of boxoffice", o.Operator, response.Status)
		}
		return problem
	}
	if err := json.NewDecoder(response.Body).Decode(v); err != nil {
		return fmt.Errorf("the response of %s cannot be read: %w", o.Operator, err)
	}
	return nil
}

type cancelCmd struct {
	operator
	ID string `arg:"" help:"The id of a job, a workflow, an oracle or a schedule."`
}

func (cmd *cancelCmd) Run(ctx context.Context, s *Settings, std *streams) error {
	id, err := parseID(cmd.ID)
	if err != nil {
		return err
	}
	var cancelled work.Cancelled
	if err := cmd.call(ctx, http.MethodPost, "/work/"+string(id)+"/cancel", &cancelled); err != nil {
		return err
	}
	if s.JSON {
		return json.NewEncoder(std.out).Encode(cancelled)
	}
	_, err = fmt.Fprintf(std.out, "%s %s is %s\n", printable(cancelled.Kind), printable(string(cancelled.ID)),
		printable(cancelled.State))
	return err
}
