"""A shop assistant that pays money back, once a person has said yes.

python shop.py              waits for approval
cairn approve order-7/1     says yes
python shop.py              pays once, and finishes
python shop.py              shows the stored result and does nothing
"""

from pathlib import Path

from cairn import Agent, Runtime, Scripted, call, tool


@tool(effect="write")
def refund(order: str, cents: int) -> str:
    """Pay money back to the customer."""
    with Path("payments.txt").open("a") as payments:
        payments.write(f"order {order}: {cents} cents\n")
    return f"refunded {cents} cents for order {order}"


model = Scripted([call("refund", order="7", cents=400), "Order 7: 4 euros were paid back."])
rt = Runtime("cairn.db", agents=[Agent("shop", model, tools=[refund])])

if __name__ == "__main__":
    with rt:  # closes it at the end; what is in flight may land
        run = rt.run("shop", "Refund order 7, 4 euros", id="order-7")
        print(run.status, run.text, *run.pending, sep="\n")
