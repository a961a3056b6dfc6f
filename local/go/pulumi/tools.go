//go:build tools

// Package tools pins the Pulumi engine that we build where no release can be downloaded.
package tools

import _ "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
