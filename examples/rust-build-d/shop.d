/** What the shop does. */
provider shop {
	/**
	 * An order came in.
	 * @param id number of the order
	 * @param customer who ordered
	 */
	probe order__start(int id, const char *customer);

	/**
	 * The order left the house.
	 * @param id number of the order
	 * @param price in cents
	 */
	probe order__done(int id, uint64_t price);
};
