// Package examples holds the example agents, for the demo to build one.
package examples

import _ "embed"

// AgentGo is the source of agent-go, one file that needs nothing but the
// standard library.
//
//go:embed agent-go/main.go
var AgentGo []byte
