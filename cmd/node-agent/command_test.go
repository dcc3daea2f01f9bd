// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"strings"
	"testing"
)

// TestCommandLineErrors: mistakes of the command line are refused.
func TestCommandLineErrors(t *testing.T) {
	const kubeconfig = "--kubeconfig=../exporter/testdata/kubeconfig"
	tests := map[string]struct {
		args []string
		env  string
		want string
	}{
		"no node name":                  {want: "NODE_NAME is not set"},
		"a bad node name":               {args: []string{kubeconfig}, env: "N_1", want: "node name"},
		"an unknown mode":               {args: []string{kubeconfig, "--mode=lenient"}, env: "n1", want: `mode "lenient": want repair or strict`},
		"an unknown topology":           {args: []string{kubeconfig, "--topology=auto"}, env: "n1", want: `topology "auto": want pass or strip`},
		"an unknown NRI mode":           {args: []string{kubeconfig, "--nri=on"}, env: "n1", want: `nri "on": want off, report or pin`},
		"a missing kubeconfig":          {args: []string{"--kubeconfig=/does/not/exist"}, env: "n1", want: "/does/not/exist"},
		"an argument":                   {args: []string{"now"}, env: "n1", want: "unknown command"},
		"a machine and a number":        {args: []string{"simulate-plugin", "--machine=dgx-h100", "--gpus=4"}, env: "n1", want: "cannot be used together"},
		"a machine of no node":          {args: []string{"simulate-plugin", "--machine=dgx-h100"}, want: "needs --node-name"},
		"an unknown machine":            {args: []string{"simulate-plugin", "--machine=abacus"}, env: "n1", want: "abacus"},
		"a plugin of no devices":        {args: []string{"simulate-plugin"}, env: "n1", want: "0 devices"},
		"a resource that is none":       {args: []string{"simulate-plugin", "--gpus=1", "--resource=gpu"}, env: "n1", want: `"gpu"`},
		"more NUMA nodes than devices":  {args: []string{"simulate-plugin", "--gpus=1", "--numa=2"}, env: "n1", want: "1 devices on 2 NUMA nodes"},
		"an argument of a plugin":       {args: []string{"simulate-plugin", "now"}, env: "n1", want: "unknown command"},
		"a negative number of devices":  {args: []string{"simulate-plugin", "--gpus=-1"}, env: "n1", want: "-1 devices"},
		"a verbosity that is no number": {args: []string{"--v=x"}, env: "n1", want: "invalid argument"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cmd := newCommand(func(key string) string {
				if key == "NODE_NAME" {
					return tc.env
				}
				return ""
			})
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
