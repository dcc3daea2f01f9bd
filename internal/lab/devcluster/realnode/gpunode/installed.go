// SPDX-License-Identifier: Apache-2.0

package gpunode

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"os/exec"
)

// InstalledGPU is a GPU of this machine as nvidia-smi shows it, which shares no code with the
// exporter.
type InstalledGPU struct {
	UUID     string `xml:"uuid"`
	Model    string `xml:"product_name"`
	Minor    int    `xml:"minor_number"` // of its device node, /dev/nvidia0 and so on
	PCIBusID string `xml:"pci>pci_bus_id"`
	Memory   string `xml:"fb_memory_usage>total"` // such as "81559 MiB"
}

// Installed returns the GPUs of this machine from nvidia-smi, in the order of their indices.
func Installed(ctx context.Context) ([]InstalledGPU, error) {
	text, err := exec.CommandContext(ctx, "nvidia-smi", "-q", "-x").Output()
	if err != nil {
		return nil, fmt.Errorf("ask nvidia-smi for the GPUs: %w", err)
	}
	var printed struct {
		GPUs []InstalledGPU `xml:"gpu"`
	}
	if err := xml.Unmarshal(text, &printed); err != nil {
		return nil, fmt.Errorf("read what nvidia-smi says of the GPUs: %w", err)
	}
	if len(printed.GPUs) == 0 {
		return nil, errors.New("nvidia-smi names no GPU")
	}
	return printed.GPUs, nil
}
