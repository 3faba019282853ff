// Package examples holds the example agents. The demo builds one of them.
package examples

import _ "embed"

// AgentGo is the source of agent-go: one file that imports only the standard library.
//
//go:embed agent-go/main.go
var AgentGo []byte
