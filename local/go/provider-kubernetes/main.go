// The Pulumi Kubernetes provider, built from its pinned module where no release can be downloaded.
package main

import (
	_ "embed"

	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"
)

// The build copies both files out of the provider's module and sets the schema's version (see local/toolchain).
var (
	//go:embed schema.json
	schema []byte
	//go:embed terraform-mapping.json
	terraformMapping []byte
	version          = "4.25.0"
)

func main() {
	provider.Serve("kubernetes", version, schema, terraformMapping)
}
