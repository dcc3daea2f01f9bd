// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	recorded "github.com/nvtopo/nvtopo/internal/transcript"
	"github.com/nvtopo/nvtopo/pkg/cli"
)

// noTranscript are commands that a transcript says nothing about.
var noTranscript = map[string]string{
	"nvtopo":             "it prints its help",
	"nvtopo version":     "it differs from build to build",
	"nvtopo snapshot":    "it prints the help of save",
	"nvtopo fabric":      "it prints the help of what is below it",
	"nvtopo get":         "it prints the help of what is below it",
	"nvtopo generate":    "it prints the help of what is below it",
	"nvtopo ui":          "it serves until it is interrupted: ui.md shows it, which test/integration runs",
	"nvtopo verify-node": "it looks at a real node: cli.md shows it, which pkg/cli compares",
}

// TestCommandTranscripts: every command has a transcript. Somewhere in docs/transcripts, or in a
// page, it is seen at work.
func TestCommandTranscripts(t *testing.T) {
	shown := shownCommands(t)
	for _, c := range commands(cli.New("nvtopo")) {
		name := c.CommandPath()
		seen := slices.ContainsFunc(shown, func(line string) bool { return line == name || strings.HasPrefix(line, name+" ") })
		switch _, excused := noTranscript[name]; {
		case !seen && !excused:
			t.Errorf("%s is shown in no file of docs/transcripts, and in no page that a test checks", name)
		case seen && excused && c.Runnable() && !c.HasSubCommands():
			t.Errorf("%s is shown, and needs no excuse", name)
		}
	}
}

// shownCommands are the command lines that tests run and compare.
func shownCommands(t *testing.T) (lines []string) {
	t.Helper()
	entries, err := os.ReadDir("transcripts")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		text, err := os.ReadFile(path.Join("transcripts", entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				lines = append(lines, strings.TrimSpace(command))
			}
		}
	}
	if _, err := eachPage(repository(), func(name string, page []line) []string {
		for _, shown := range commandsOf(name, page) {
			lines = append(lines, "nvtopo "+shown.command)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return lines
}

// TestPaperTranscript shows what asks neither a cluster nor a machine.
func TestPaperTranscript(t *testing.T) {
	dir := t.TempDir()
	s := recorded.New("paper")
	s.Hide(regexp.QuoteMeta(dir)+"/", "")
	file := func(name, text string) string {
		p := path.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.File(p, text)
		return p
	}
	s.Say("Four nodes in two racks. Where would four pods of eight GPUs go?")
	fabric := file("fabric.csv", "node,spine,rack\nn0,s0,r0\nn1,s0,r0\nn2,s0,r1\nn3,s0,r1\n")
	nodes := file("nodes.csv", "node,machine\nn0,dgx-h100\nn1,dgx-h100\nn2,dgx-h100\nn3,dgx-h100\n")
	s.Run(t, "fabric", "place", "--pods", "4", "--gpus", "8", "--fabric", fabric, "--nodes", nodes)
	s.Say("What two policies make of the same 2000 pods.")
	cluster := file("cluster.txt", "dgx1-v100 16\n")
	s.Run(t, "simulate", "--nodes", cluster, "--trace", "synthetic:multigpu50", "--pods", "2000", "--policy", "ours", "--policy", "binpack+lowest")
	s.Say("A machine as NCCL reads it.")
	s.Run(t, strings.Fields("generate nccl-topo --machine a100-pcie-4-bridged --arch x86_64 --vendor AuthenticAMD --family 25 --model 1")...)
	s.Compare(t)
}

// TestWeightTable: the page about weights shows what the simulator says of them.
func TestWeightTable(t *testing.T) {
	dir := t.TempDir()
	s := recorded.New("weights")
	s.Hide(regexp.QuoteMeta(dir)+"/", "")
	const machines = "dgx1-v100 16\ndgx-a100 8\nhgx-h200 8\nh200-nvl-8 8\na100-pcie-4-bridged 16\n"
	nodes := path.Join(dir, "nodes.txt")
	if err := os.WriteFile(nodes, []byte(machines), 0o600); err != nil {
		t.Fatal(err)
	}
	s.File(nodes, machines)
	for _, load := range []string{"0.6", "0.85"} {
		line := "simulate --trace synthetic:multigpu50 --load " + load + " --weights 0.4,0.3,0.3 --weights 0.6,0.2,0.2 --weights 0.2,0.4,0.4" +
			" --weights 1,0,0 --weights 0,1,0 --weights 0,0,1 --policy ours --policy binpack+exact --nodes " + nodes
		s.Run(t, strings.Fields(line)...)
	}
	for _, policy := range []string{"best-effort", "single-numa-node"} {
		s.Run(t, strings.Fields("simulate --trace synthetic:multigpu50 --load 0.85 --pod-policy "+policy+" --nodes "+nodes)...)
	}
	s.Compare(t)
	page, err := os.ReadFile("howto/weights.md")
	if err != nil {
		t.Fatal(err)
	}
	for shown := range strings.SplitSeq(strings.TrimSpace(s.Text()), "\n\n$ ") {
		if !strings.Contains(string(page), shown) {
			t.Errorf("docs/howto/weights.md does not show:\n%s", shown)
		}
	}
}
