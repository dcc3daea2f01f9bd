// SPDX-License-Identifier: Apache-2.0

// Command images makes the container images of the programs, without a registry and without a daemon: one
// OCI layout for each program, with an image for each architecture it was built for, and bills of
// materials. A static program is alone in its image; one that needs a C library gets the machine's. The
// same programs make the same images.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// options are the command line.
type options struct {
	programs  string // has linux-ARCH/PROGRAM
	out       string
	libraries string
	registry  string
	tag       string
	version   string
	revision  string
	at        time.Time
	plain     bool // layers are not compressed
}

func main() {
	var o options
	var seconds int64
	flag.StringVar(&o.programs, "programs", "", "folder of the programs, as linux-ARCH/NAME")
	flag.StringVar(&o.out, "out", "", "folder to write to: NAME, an OCI layout, and NAME.linux-ARCH.spdx.json")
	flag.StringVar(&o.libraries, "libraries", "/", "root of the C library that dynamically linked programs get")
	flag.StringVar(&o.registry, "registry", "", "registry and path before the names of the images")
	flag.StringVar(&o.tag, "tag", "dev", "tag of the images")
	flag.StringVar(&o.version, "version", "unknown", "version of the programs")
	flag.StringVar(&o.revision, "revision", "unknown", "commit that they were built from")
	flag.Int64Var(&seconds, "time", 0, "time of all files, in seconds since 1970: that of the commit")
	flag.BoolVar(&o.plain, "plain", false, "do not compress the layers: faster, for images that stay on this machine")
	flag.Parse()
	o.at = time.Unix(seconds, 0).UTC()
	if err := run(&o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

// run makes the images, and prints the name, size and digest of each.
func run(o *options, out io.Writer) error {
	if o.programs == "" || o.out == "" {
		return errors.New("--programs and --out are needed")
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil { //nolint:gosec // for everybody to read
		return fmt.Errorf("make a folder: %w", err)
	}
	for _, p := range programs() {
		all, err := buildAll(&p, o)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		digest, err := write(&p, all, o)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		for _, b := range all {
			if err := report(out, &p, b); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
		if _, err := fmt.Fprintf(out, "%-24s %s\n", p.name, digest); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	return nil
}

// buildAll makes the image of a program for each architecture it was built for.
func buildAll(p *program, o *options) ([]*built, error) {
	var out []*built
	for _, arch := range []string{"amd64", "arm64"} {
		binary, err := os.ReadFile(filepath.Join(o.programs, "linux-"+arch, p.name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the program: %w", err)
		}
		b, err := build(p, arch, binary, o)
		if err != nil {
			return nil, fmt.Errorf("linux/%s: %w", arch, err)
		}
		out = append(out, b)
	}
	if len(out) == 0 {
		return nil, errors.New("there is no program of any architecture in " + o.programs)
	}
	return out, nil
}

// report prints the packed size of an image and its contents.
func report(out io.Writer, p *program, b *built) error {
	layers, err := b.image.Layers()
	if err != nil {
		return fmt.Errorf("read the layers: %w", err)
	}
	var size int64
	for _, l := range layers {
		n, err := l.Size()
		if err != nil {
			return fmt.Errorf("read the size of a layer: %w", err)
		}
		size += n
	}
	what := "static"
	if b.libc != "" {
		what = b.libc
	}
	if _, err := fmt.Fprintf(out, "%-24s linux/%s, %s, %.1f MB\n", p.name, b.arch, what, float64(size)/1e6); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
