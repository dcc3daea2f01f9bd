// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// plainForms are the forms of commands that have one table.
var plainForms = [...]string{"table", "json", "yaml"}

// bindForm adds the flag -o for the form of the output; the first of the forms is the default.
func bindForm(cmd *cobra.Command, into *string, forms ...string) {
	cmd.Flags().StringVarP(into, "output", "o", forms[0], "form of the answer: "+formList(forms))
	suggest(cmd, "output", cobra.FixedCompletions(forms, cobra.ShellCompDirectiveNoFileComp))
}

// checkForm refuses a value that is none of the forms.
func checkForm(given string, forms ...string) error {
	if !slices.Contains(forms, given) {
		return usagef("--output %q: want %s", given, formList(forms))
	}
	return nil
}

func formList(forms []string) string {
	last := len(forms) - 1
	return strings.Join(forms[:last], ", ") + " or " + forms[last]
}

// writeAnswer writes the output as JSON or YAML, and in every other form with text.
func writeAnswer(w io.Writer, form string, answer any, text func(io.Writer) error) error {
	var data []byte
	var err error
	switch form {
	case "json":
		var b bytes.Buffer
		err = encodeJSON(&b, "", answer)
		data = b.Bytes()
	case "yaml":
		data, err = yaml.Marshal(answer)
	default:
		var b strings.Builder // so that a failure leaves no partial output
		err = text(&b)
		data = []byte(b.String())
	}
	if err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	_, err = w.Write(data)
	return err
}

// asYAML converts the JSON output of write to YAML.
func asYAML(w io.Writer, write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	data, err := yaml.JSONToYAML(b.Bytes())
	if err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	_, err = w.Write(data)
	return err
}

// outputFlag is the form of the output of the commands about one machine.
type outputFlag string

var textForms = [...]string{"text", "json", "yaml"}

func (o *outputFlag) bind(cmd *cobra.Command) { bindForm(cmd, (*string)(o), textForms[:]...) }

func (o outputFlag) check() error { return checkForm(string(o), textForms[:]...) }

// write prints the output in the chosen form.
func (o outputFlag) write(w io.Writer, answer any, text func(io.Writer) error) error {
	return writeAnswer(w, string(o), answer, text)
}

// parseBandwidth reads a bandwidth flag, in kB/s.
func parseBandwidth(flag, value string) (int64, error) {
	kBps, err := nvtopo.ParseBandwidth(value)
	if err != nil {
		return 0, usagef("%s %w", flag, err)
	}
	return kBps, nil
}
