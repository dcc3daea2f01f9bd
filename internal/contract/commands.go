// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Commands writes a command and its subcommands, hidden ones too, with all flags, their types, defaults
// and help texts.
func Commands(root *cobra.Command) string {
	var b strings.Builder
	command(&b, root)
	return strings.TrimPrefix(b.String(), "\n")
}

func command(b *strings.Builder, c *cobra.Command) {
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	fmt.Fprintf(b, "\n# %s%s\n", c.UseLine(), marks(c.Hidden, c.Deprecated))
	for _, part := range []struct{ name, text string }{
		{"aliases", strings.Join(c.Aliases, ", ")}, {"arguments", strings.Join(c.ValidArgs, ", ")}, {"short", c.Short},
	} {
		if part.text != "" {
			fmt.Fprintf(b, "%s: %s\n", part.name, part.text)
		}
	}
	for _, part := range []struct{ name, text string }{{"long", c.Long}, {"example", c.Example}} {
		if part.text != "" {
			fmt.Fprintf(b, "%s:\n%s\n", part.name, indent(part.text))
		}
	}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		short := ""
		if f.Shorthand != "" {
			short = "-" + f.Shorthand + ", "
		}
		where := ""
		if c.HasSubCommands() && c.PersistentFlags().Lookup(f.Name) != nil {
			where = " (also of commands below)"
		}
		value := ""
		if f.NoOptDefVal != "" && f.Value.Type() != "bool" {
			value = fmt.Sprintf(" without value %q", f.NoOptDefVal)
		}
		fmt.Fprintf(b, "%s--%s %s = %q%s%s%s: %s\n", short, f.Name, f.Value.Type(), f.DefValue, value, where, marks(f.Hidden, f.Deprecated), f.Usage)
	})
	for _, sub := range c.Commands() {
		if sub.Name() != "help" && sub.Name() != "completion" { // cobra's own
			command(b, sub)
		}
	}
}

func marks(hidden bool, deprecated string) string {
	out := ""
	if hidden {
		out += " (hidden)"
	}
	if deprecated != "" {
		out += " (deprecated: " + deprecated + ")"
	}
	return out
}

func indent(text string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		b.WriteString(strings.TrimRight("  "+line, " ") + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}
