import * as automation from "@pulumi/pulumi/automation";
import * as trainyard from "./sdk";

const stack = JSON.parse(process.argv[2]) as trainyard.types.input.StackArgs;

async function main() {
    const program = async () => ({ queues: new trainyard.Cluster("research", { stack }).queues });
    const made = await automation.LocalWorkspace.createOrSelectStack({
        stackName: "dev", projectName: "typescript", program,
    });
    try {
        process.stdout.write(JSON.stringify((await made.preview()).changeSummary));
    } catch (error) {
        process.stdout.write(String(error));
    }
}
void main();
