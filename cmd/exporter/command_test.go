// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net"
	"strings"
	"testing"
)

// TestCommandLineErrors: mistakes of the command line are refused.
func TestCommandLineErrors(t *testing.T) {
	tests := map[string]struct {
		args []string
		env  string
		want string
	}{
		"no node name":           {args: nil, want: "NODE_NAME is not set"},
		"unknown source":         {args: []string{"--source=smi"}, env: "n1", want: "not nvml, machine:NAME or file:PATH"},
		"unknown machine":        {args: []string{"--source=machine:abacus"}, env: "n1", want: "abacus"},
		"enforcement of real":    {args: []string{"--assume-enforced"}, env: "n1", want: "cannot be used with --source=nvml"},
		"model of real":          {args: []string{"--gpu-model=H100"}, env: "n1", want: "cannot be used with --source=nvml"},
		"an interval of nothing": {args: []string{"--interval=0s"}, env: "n1", want: "--interval must be positive"},
		"an Xid of no time":      {args: []string{"--xid-hold=0s"}, env: "n1", want: "--xid-hold must be positive"},
		"a bad node name":        {args: []string{"--source=machine:dgx-h100", "--kubeconfig=testdata/kubeconfig"}, env: "N_1", want: "node name"},
		"a missing kubeconfig":   {args: []string{"--source=machine:dgx-h100", "--kubeconfig=/does/not/exist"}, env: "n1", want: "/does/not/exist"},
		"an argument":            {args: []string{"now"}, env: "n1", want: "unknown command"},
		"an address in use":      {args: []string{"--source=machine:dgx-h100", "--kubeconfig=testdata/kubeconfig", "--metrics-address=" + taken(t)}, env: "n1", want: "serve metrics"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cmd := newCommand(func(string) string { return tc.env })
			cmd.SetArgs(tc.args)
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			err := cmd.ExecuteContext(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want it to contain %q", err, tc.want)
			}
		})
	}
}

// taken returns an address that somebody listens on.
func taken(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln.Addr().String()
}
